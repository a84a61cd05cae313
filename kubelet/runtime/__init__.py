"""The emulated container runtime: the behaviour of containers, its durations, and its records on disk."""
