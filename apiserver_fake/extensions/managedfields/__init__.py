"""Who manages which fields of an object: field sets, typed values, managers."""
