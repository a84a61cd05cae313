"""Controller of aggregated ClusterRoles, which take their rules from other ClusterRoles."""
