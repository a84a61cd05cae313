"""Snapshots, recordings and traces of other tools: read, write, load into a mesh, and play at their times."""
