"""Servers that have a say in scheduling: upstream's extenders, asked by HTTP during a cycle."""
