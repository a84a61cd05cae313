"""What the objects of a namespace use, for its ResourceQuotas."""
