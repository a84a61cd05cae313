"""Admission plugins that are built in: what a namespace or a node allows of a write that is valid in itself."""
