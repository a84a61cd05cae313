"""The mains every room is plugged into, and the annexes that are processes of their own.

A folder here with a `__main__.py` is a process; one without is a main.
"""
