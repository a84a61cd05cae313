"""Functions of CEL: the standard ones, extensions of cel-go, and those of Kubernetes, one file per subject."""
