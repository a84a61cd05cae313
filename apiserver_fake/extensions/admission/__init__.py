"""Admission that objects configure: webhooks, admission policies and their expressions (KEP-3488, KEP-3962)."""
