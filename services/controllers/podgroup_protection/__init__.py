"""Controller that keeps a PodGroup while it has pods."""
