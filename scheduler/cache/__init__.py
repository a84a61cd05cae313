"""The scheduler's view of nodes and pods, assumed pods included, as objects and as columns over all nodes."""
