"""The kubelet: what happens on nodes. One process hosts many; each has its own identity and faults."""
