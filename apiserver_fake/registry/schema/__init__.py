"""Schemas of the served kinds: their fields, and how their lists merge."""
