"""What pods refer to: read before a container starts, and what is said when something is missing."""
