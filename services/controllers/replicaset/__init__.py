"""As many pods as a ReplicaSet asks for."""
