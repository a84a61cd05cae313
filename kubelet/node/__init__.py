"""A node beside its pods: its definition, status, health, images and shutdown."""
