"""SPDY/3.1, the protocol of Kubernetes' streaming endpoints: frames and connections."""
