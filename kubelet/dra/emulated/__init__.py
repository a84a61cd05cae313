"""The emulated DRA driver: a process beside the kubelet of its node."""
