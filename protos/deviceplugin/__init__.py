"""The kubelet's device plugin API, by version."""
