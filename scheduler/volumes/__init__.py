"""Where a pod's volumes are or could be: what the volume plugins have in common."""
