"""ResourceClaims made from templates, and deallocated when no pod uses them."""
