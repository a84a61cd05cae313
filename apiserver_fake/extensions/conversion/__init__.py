"""Kinds that are built in and served in an older version besides the stored one, a file a kind."""
