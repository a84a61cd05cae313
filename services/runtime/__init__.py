"""How to be a well-behaved process, real or simulated."""
