"""The controller that signs approved certificate requests."""
