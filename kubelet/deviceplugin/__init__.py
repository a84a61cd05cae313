"""Device plugins: who has registered, what they offer, and how they are asked."""
