"""Flags of the claim controller."""

from dataclasses import dataclass

from services.runtime.election import LeaderElectionConfig


@dataclass(frozen=True, kw_only=True)
class ClaimControllerConfig(LeaderElectionConfig):
    """Make claims from templates, release them, and evict pods from tainted devices."""
