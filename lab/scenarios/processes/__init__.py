"""The mesh as processes on this machine, and the faults that are brought to them from outside."""
