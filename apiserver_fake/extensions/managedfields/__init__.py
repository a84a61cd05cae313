"""Field management (`managedFields`): field sets, typed values, managers."""
