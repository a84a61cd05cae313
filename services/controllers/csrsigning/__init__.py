"""Controller that signs approved certificate requests."""
