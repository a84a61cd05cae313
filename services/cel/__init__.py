"""The Common Expression Language as Kubernetes has it: read, checked, costed and evaluated."""
