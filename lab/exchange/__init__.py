"""Snapshots, recordings and traces of other tools: read, written, loaded into a mesh and played in their time."""
