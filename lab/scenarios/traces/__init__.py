"""A pod's life from its spans. Pure."""
