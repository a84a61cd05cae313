"""Pods that do not tolerate the NoExecute taints of their node."""
