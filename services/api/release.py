"""The Kubernetes release this project follows; whoever says a version, says this one."""

KUBERNETES = "v1.36.3"
