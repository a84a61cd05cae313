"""RBAC: what the stored Roles and bindings allow clients, and the default roles of every cluster."""
