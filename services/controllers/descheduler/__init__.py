"""Pods deleted because a better place than theirs may exist."""
