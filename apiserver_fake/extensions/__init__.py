"""What an API server has besides its kernel, a folder each: `register` says which are on, `points` what each gives.

The kernel (storage, registry, servers) knows none of them; it has the places of `points` to be filled.
"""
