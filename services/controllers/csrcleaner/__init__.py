"""Controller that deletes finished certificate requests."""
