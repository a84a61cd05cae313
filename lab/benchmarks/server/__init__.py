"""What an API server costs beside its requests: its loop and its memory."""
