"""Validation of `resource.k8s.io`: claims, templates, classes, slices and taint rules."""
