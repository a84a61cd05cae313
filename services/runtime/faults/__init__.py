"""Faults that people inject into a running mesh."""
