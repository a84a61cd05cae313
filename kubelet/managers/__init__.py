"""The resource managers: which pod has which CPUs, memory and devices of a node."""
