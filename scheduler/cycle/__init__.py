"""Scheduling and binding cycles: a node is chosen for a pod, and the choice is bound or undone."""
