"""Version v1beta1, the only one there is; names and numbers are Kubernetes'."""
