"""Taint eviction controller: deletes pods that do not tolerate the NoExecute taints of their node."""
