"""The places of a pod's volumes, existing or possible: the common part of the volume plugins."""
