"""The first version of the mesh's wire."""
