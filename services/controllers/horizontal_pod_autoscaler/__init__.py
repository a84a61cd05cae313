"""HorizontalPodAutoscaler controller: scales replicas by the usage of pods."""
