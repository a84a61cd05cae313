"""What only containers need: their health check, and a kubelet host that is named after its container."""
