"""API servers over REST: a kubeconfig, credentials, and clients with and without an event loop."""
