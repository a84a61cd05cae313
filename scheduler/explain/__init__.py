"""Explanations why a pod is on its node or on none, changes that would make it fit, and the record on pods."""
