"""Controller that reports nodes that unbind too many pods, and taints them for a while."""
