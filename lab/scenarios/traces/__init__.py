"""The life of a pod, reconstructed from its spans. Pure."""
