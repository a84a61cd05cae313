"""Scenarios: runs of the whole mesh in one virtual loop, or as real processes, checked while they run."""
