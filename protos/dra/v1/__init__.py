"""Version v1; v1beta1 is the same on the wire. Names and numbers are Kubernetes'."""
