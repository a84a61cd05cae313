"""The default service account of every namespace."""
