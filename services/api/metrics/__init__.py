"""Usage of emulated containers and other metrics, as annotations describe them, and the APIs that serve them."""
