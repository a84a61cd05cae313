"""Dynamic admission: webhooks, admission policies and their expressions (KEP-3488, KEP-3962)."""
