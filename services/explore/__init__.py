"""Which order of messages breaks a story? Around one moment, deliveries are held back, a few at a time."""
