"""Dependents follow the owners that are gone."""
