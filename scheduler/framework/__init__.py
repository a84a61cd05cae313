"""The framework of plugins: extension points, statuses, the cycle's state, and the runner of plugins."""
