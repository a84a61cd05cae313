"""The objects to which pods refer: read before a container starts, with messages for missing ones."""
