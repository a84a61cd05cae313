"""Garbage collector: deletes dependents of deleted owners."""
