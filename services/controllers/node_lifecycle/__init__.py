"""Nodes that stop reporting become Unknown and tainted."""
