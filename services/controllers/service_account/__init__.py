"""Controller of the default service account in every namespace."""
