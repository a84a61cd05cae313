"""The audit log: the caller of each request, its authorization, and its outcome (decision 0040)."""
