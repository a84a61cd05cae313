"""Upstream's extenders: servers that are called by HTTP during a scheduling cycle."""
