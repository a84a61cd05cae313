"""The machine of one pod on one node: its containers, probes, sizes and status."""
