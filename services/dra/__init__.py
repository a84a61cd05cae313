"""Dynamic Resource Allocation, the pure part: devices that a node reaches, and their allocation to claims."""
