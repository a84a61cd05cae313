"""The audit log: who asked for what, whether it was allowed, and what came of it (decision 0040)."""
