"""Traces: the part that is wanted of a public one, its rows in order, and how long their pods run."""
