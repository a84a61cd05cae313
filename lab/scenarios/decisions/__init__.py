"""Decisions of a mesh's components in a run, and the decisions in which two runs differ."""
