"""The statuses of pods on their way to the API server."""
