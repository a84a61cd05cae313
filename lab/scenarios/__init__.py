"""Scenarios: the whole mesh in one virtual loop, or as real processes, judged while it runs."""
