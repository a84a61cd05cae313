"""Subresources, one file each; each offers `SUBRESOURCES`."""
