"""Upstream's scheduler_perf files, run as they are: read, resolved, performed and measured."""
