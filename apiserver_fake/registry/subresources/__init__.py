"""One file a subresource; each offers `SUBRESOURCES`."""
