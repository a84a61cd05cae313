"""The client side of the API: calls with retries, informers, the executor of actions, events, leases."""
