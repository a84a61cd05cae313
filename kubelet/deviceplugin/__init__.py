"""Device plugins: their registrations, their devices, and the calls to them."""
