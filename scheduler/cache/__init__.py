"""What the scheduler knows and assumes of nodes and pods, as objects and as columns over all nodes."""
