"""The node itself, apart from its pods: its definition, status, health, images and shutdown."""
