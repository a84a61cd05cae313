"""Extensions of an API server, one folder each. `register` says which are on, `points` what each provides.

The kernel (storage, registry, servers) knows none of them. It only has the places of `points`, which extensions
fill.
"""
