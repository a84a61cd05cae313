"""The API server: the only place where state lives."""
