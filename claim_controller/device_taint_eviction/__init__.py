"""Deletion of pods that use devices with NoExecute taints."""
