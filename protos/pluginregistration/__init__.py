"""How plugins register with a kubelet that watches their sockets, by version."""
