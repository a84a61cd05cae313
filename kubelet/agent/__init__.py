"""The loops, calls, timers, disk and power of the nodes of one process. Nothing else waits."""
