"""ClusterRoles whose rules are those of others."""
