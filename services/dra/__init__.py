"""Dynamic Resource Allocation, the part that is pure: which devices a node reaches, and which of them claims get."""
