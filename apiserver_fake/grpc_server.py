"""The mesh's own door: placeholder body follows."""
