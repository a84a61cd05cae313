"""What keplab uses of the API of etcd."""
