"""Pods that a node runs without the API server, and their mirror pods."""
