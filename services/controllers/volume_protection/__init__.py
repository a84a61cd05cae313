"""Volumes and claims in use are not deleted."""
