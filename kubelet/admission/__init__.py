"""Whether a pod may run on a node: predicates, and the handler that decides."""
