"""Nodes that unbind pod after pod are tainted for a while."""
