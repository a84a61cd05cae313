"""Search for an order of messages that breaks a scenario: hold back a few deliveries around one moment."""
