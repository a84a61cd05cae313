"""HorizontalPodAutoscalers: replicas by what pods use."""
