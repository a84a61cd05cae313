"""Volumes are attached to the nodes where pods want them, and detached from the others."""
