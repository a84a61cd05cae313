"""Pods that use devices with NoExecute taints, deleted."""
