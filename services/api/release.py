"""The Kubernetes release this project follows; every version that is shown is this one."""

KUBERNETES = "v1.36.3"
