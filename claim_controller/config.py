"""Flags of the claim controller."""

from dataclasses import dataclass

from services.runtime.election import LeaderElectionConfig


@dataclass(frozen=True, kw_only=True)
class ClaimControllerConfig(LeaderElectionConfig):
    """Flags of the claim controller, which makes claims from templates, releases them, and evicts pods from
    tainted devices.
    """
