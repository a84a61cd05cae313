"""Which CPUs, memory and devices of a node are whose."""
