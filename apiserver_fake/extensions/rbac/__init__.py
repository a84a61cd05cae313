"""RBAC: what the stored Roles and bindings let clients do, and those that every cluster has."""
