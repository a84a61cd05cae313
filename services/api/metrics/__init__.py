"""What emulated containers use and what else is measured, as annotations describe it; the APIs that serve it."""
