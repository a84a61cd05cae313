"""Volumes that the attach/detach controller attaches to the node."""
