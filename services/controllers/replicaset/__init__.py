"""ReplicaSet controller: keeps the requested number of pods."""
