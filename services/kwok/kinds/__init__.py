"""The kinds, a file each."""
