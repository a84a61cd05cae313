"""Disruption controller: number of pods that each PodDisruptionBudget allows to disrupt now."""
