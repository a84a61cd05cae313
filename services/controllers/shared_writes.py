"""What controllers write most, under the name their folders know: `services.reconcile.writes`."""

from services.reconcile.writes import conditions, differing, finalizers, patch, status

__all__ = ["conditions", "differing", "finalizers", "patch", "status"]
