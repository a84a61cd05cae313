"""For every layer: property tests try the same examples everywhere, and a slow machine is no failure."""

from hypothesis import HealthCheck, settings

settings.register_profile("keplab", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("keplab")
