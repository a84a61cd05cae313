"""Controller that publishes the API server's CA certificate to every namespace."""
