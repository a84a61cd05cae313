"""The kinds of patch, and server-side apply."""
