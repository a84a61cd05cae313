"""Deployments: ReplicaSets that are rolled out, rolled back and counted."""
