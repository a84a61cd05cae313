"""An emulated device plugin: a separate process that talks over sockets to a kubelet, this one's or a real one."""
