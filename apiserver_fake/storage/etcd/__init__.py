"""The engine `etcd`: several API servers over one etcd."""
