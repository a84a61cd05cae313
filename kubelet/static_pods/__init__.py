"""Pods that a node runs without the API server, and the mirrors that show them."""
