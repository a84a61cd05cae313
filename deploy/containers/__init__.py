"""What only containers need: their health check."""
