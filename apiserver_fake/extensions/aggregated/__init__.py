"""The answers of aggregated API servers, computed here: metrics of nodes, pods and other objects."""
