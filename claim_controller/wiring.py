"""Build the claim controller: its controllers over shared informers, as one component."""

from typing import Final

from claim_controller.config import ClaimControllerConfig
from claim_controller.device_taint_eviction import controller as device_taint_eviction
from claim_controller.resourceclaim import controller as resourceclaim
from services.api.seams import Component, Seams
from services.runtime.manager import Manager

LEASE: Final = "claim-controller"
CONTROLLERS: Final = (resourceclaim.CONTROLLER, device_taint_eviction.CONTROLLER)
"""The controllers, in the order in which they start."""


def build(config: ClaimControllerConfig, seams: Seams) -> Component:
    """Return the component that runs the controllers."""
    switches = seams.switches
    controllers = [each.build(switches) for each in CONTROLLERS if each.is_wanted(switches)]
    return Manager(controllers, seams, elector=config.elector(seams, LEASE))
