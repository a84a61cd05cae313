"""What a plugin sees of the scheduler: extension points, statuses, the cycle's state, and who runs them."""
