"""Version 3 of that API."""
