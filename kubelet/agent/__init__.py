"""What the nodes of one process do in time: their loops, calls, timers, disk and power. Nothing else waits."""
