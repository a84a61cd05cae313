"""Namespace controller: empties namespaces that are being deleted."""
