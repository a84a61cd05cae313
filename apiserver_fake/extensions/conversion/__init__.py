"""Built-in kinds that are served in an older version besides the stored one, one file per kind."""
