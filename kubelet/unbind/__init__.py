"""Pods that a node does not keep: deferred, or given back to the scheduler."""
