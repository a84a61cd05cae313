"""Node-pressure eviction: the resources left on a node, and the choice of pods to evict."""
