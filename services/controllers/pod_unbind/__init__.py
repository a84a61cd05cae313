"""Pods unbound in the stead of their kubelets (switch `unbind.api=condition`)."""
