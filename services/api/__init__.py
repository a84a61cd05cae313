"""Kubernetes objects: typed views, the register of kinds, wire values, and pure rules.

Nothing here does I/O or reads a clock. Documents (JSON bytes or dicts) are the truth; the frozen `Struct` views
in `kinds/` decode just the fields that components use and are never written back whole.
"""
