"""The patch types, and server-side apply."""
