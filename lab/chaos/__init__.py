"""Faults by seed: a seed draws what breaks and when; the invariants say whether anything came of it."""
