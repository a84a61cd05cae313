"""Pods with an identity, in order."""
