"""Admission plugins: what a namespace or a node allows of a write that is valid in itself."""
