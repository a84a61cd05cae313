"""Traces: select a part of a public trace, put its rows in order, and say how long its pods run."""
