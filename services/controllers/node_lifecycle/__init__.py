"""Node lifecycle controller: marks nodes that stop reporting as Unknown and taints them."""
