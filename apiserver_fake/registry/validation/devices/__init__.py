"""Rules of `resource.k8s.io`: what claims, templates, classes, slices and taint rules may say."""
