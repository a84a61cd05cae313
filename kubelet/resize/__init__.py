"""The resizes of one node: who waits, what is decided, what is told."""
