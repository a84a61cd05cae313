"""Node features: which nodes declare them, and switches that have no effect."""
