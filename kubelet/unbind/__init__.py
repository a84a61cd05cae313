"""Pods that a node does not keep: deferred, or unbound so that the scheduler may place them anew."""
