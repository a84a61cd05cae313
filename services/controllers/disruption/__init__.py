"""PodDisruptionBudgets: how many pods may be disrupted now."""
