"""The mesh as processes on this machine, and faults injected into them from outside."""
