"""Protocol packages, by name and version."""
