"""Devices for claims: what there is, what is in use, which to take, and how that is written down (KEP-4381)."""
