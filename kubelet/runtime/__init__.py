"""The emulated container runtime: what containers do, how long it takes, and what is kept of it on disk."""
