"""Libraries that every component uses, and the components that have no top-level folder of their own.

A folder here with a `__main__.py` is a process; one without is a library.
"""
