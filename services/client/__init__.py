"""An API server's other half: calls with retries, informers, the executor of actions, events, leases."""
