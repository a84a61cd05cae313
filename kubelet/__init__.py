"""The kubelet: the emulation of nodes. One process hosts many; each has its own identity and faults."""
