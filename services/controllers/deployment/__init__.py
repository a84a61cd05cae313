"""Deployment controller: rolls ReplicaSets out and back, and counts them."""
