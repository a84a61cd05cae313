"""One file a kind that has rules of its own; each offers `STRATEGIES`."""
