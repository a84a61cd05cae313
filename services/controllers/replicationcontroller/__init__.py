"""The controller of ReplicationControllers."""
