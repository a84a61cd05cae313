"""The API server: one registry behind two doors, a versioned store, and rules a kind a file."""
