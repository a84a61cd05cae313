"""One pod a node: what a DaemonSet asks of the nodes and of its pods."""
