"""The resizes of one node: which wait, what is decided, what is recorded."""
