"""Creation of ResourceClaims from templates, and their deallocation when no pod uses them."""
