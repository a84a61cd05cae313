"""Namespaces that are deleted are emptied first."""
