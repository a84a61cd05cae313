"""The kubelet's API of DRA drivers, by version."""
