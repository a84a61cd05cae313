"""Benchmarks of an API server apart from its requests: its event loop and its memory."""
