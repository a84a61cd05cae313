"""Faults that people cause in a mesh that runs."""
