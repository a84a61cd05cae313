"""SPDY/3.1, which Kubernetes' streaming endpoints speak: frames and connections."""
