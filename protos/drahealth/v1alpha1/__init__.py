"""Version v1alpha1; names and numbers are Kubernetes'."""
