"""What every component stands on, and the components without a folder of their own at the top.

A folder here with a `__main__.py` is a process; one without is a library.
"""
