"""What containers ask of the NUMA nodes of their node: CPUs, memory and huge pages."""
