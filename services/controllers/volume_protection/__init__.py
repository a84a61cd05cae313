"""Controller that protects volumes and claims in use from deletion."""
