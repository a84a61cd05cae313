"""Pods that nothing else would ever delete."""
