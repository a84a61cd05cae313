"""The HTTP server for kubectl and client-go."""
