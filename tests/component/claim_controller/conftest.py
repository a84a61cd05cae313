"""The world of the controllers' tests with the claim controller in the place of the controller manager."""

import asyncio

from claim_controller.config import ClaimControllerConfig
from claim_controller.wiring import build
from lab.scenarios.simulation.lifetime import Lifetime
from services.api.identity import CLAIM_MANAGER
from services.runtime.components import CLAIM_CONTROLLER
from services.runtime.roles import claim_controller_identities
from tests.component.controllers import conftest as controllers


class World(controllers.World):
    """Use inside `simloop.run`; `start` after `kill` begins the next life."""

    async def start(self):
        """Start the claim controller's next incarnation."""
        self.incarnations += 1
        self.life = Lifetime(CLAIM_CONTROLLER, self.incarnations)
        seams = self.seams(CLAIM_CONTROLLER, self.life, CLAIM_MANAGER, claim_controller_identities())
        self.manager = build(ClaimControllerConfig(name=CLAIM_CONTROLLER, health_port=-1), seams)
        self.task = asyncio.create_task(self.manager.run())
        self.life.adopt(self.task)
        await self.until(lambda: self.manager.is_ready)
