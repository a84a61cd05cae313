"""Which fields the served kinds have, and how lists of them merge."""
