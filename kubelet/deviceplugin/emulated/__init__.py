"""An emulated device plugin: a process of its own that speaks to a kubelet, this one's or a real one, over sockets."""
