"""Faults by seed: a seed draws the faults and their times; the invariants say whether one did damage."""
