"""KWOK's kinds, one file each."""
