"""What the scheduler believes of nodes and pods, as objects and as columns over all nodes."""
