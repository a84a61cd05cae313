"""The scheduler: it chooses a node for every pod, serially, and binds the pods concurrently."""
