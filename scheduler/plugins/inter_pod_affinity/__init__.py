"""The parts of InterPodAffinity: which pods should be near each other, and which should not."""
