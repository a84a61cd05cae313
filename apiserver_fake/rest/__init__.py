"""The HTTP server that kubectl and client-go know."""
