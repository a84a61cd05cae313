"""Version v1, the only one in use; names and numbers are Kubernetes'."""
