"""Which order of messages breaks a scenario? Around one moment, deliveries are held back, a few at a time."""
