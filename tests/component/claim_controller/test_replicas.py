"""Two claim controllers and one lease: one works, the other takes over when it is killed or cut off."""

import asyncio

from claim_controller.config import ClaimControllerConfig
from claim_controller.wiring import LEASE, build
from lab.scenarios.simulation import simloop
from lab.scenarios.simulation.lifetime import Lifetime
from services.api.identity import CLAIM_MANAGER
from services.api.meta import Key
from services.client.link_faults import HEALTHY, LinkFaults
from services.runtime.roles import claim_controller_identities
from tests.component.claim_controller.conftest import World
from tests.component.claim_controller.test_resource_claims import TEMPLATE, generated, pod


class Replicas(World):
    """Two replicas, `claim-controller-1` and `-2`, that compete for the lease."""

    async def start(self):
        self.lives, self.managers = {}, {}
        for name in ("claim-controller-1", "claim-controller-2"):
            self.lives[name] = self.life = Lifetime(name, 1)
            seams = self.seams(name, self.life, CLAIM_MANAGER, claim_controller_identities())
            config = ClaimControllerConfig(name=name, health_port=-1, leader_elect=True)
            self.managers[name] = self.manager = build(config, seams)
            task = asyncio.create_task(self.manager.run())
            self.life.adopt(task)
            self.tasks.append(task)
        await self.until(self.leader)

    async def leader(self):
        leases, _ = await self.admin.list("leases.coordination.k8s.io", namespace="kube-system")
        return next((each["spec"].get("holderIdentity") for each in leases if each["metadata"]["name"] == LEASE), None)


def run(act):
    async def main():
        async with Replicas() as here:
            await act(here)

    simloop.run(main())


def test_the_standby_takes_over_and_makes_the_claims():
    async def act(world):
        await world.admin.create("resourceclaimtemplates.resource.k8s.io", TEMPLATE)
        first = await world.leader()
        await pod(world, "a")
        await generated(world, "a")
        world.lives[first].end()

        await pod(world, "b")
        await generated(world, "b")

        assert await world.leader() != first
        claims, _ = await world.admin.list("resourceclaims.resource.k8s.io", namespace="default")
        assert len(claims) == 2

    run(act)


def test_a_leader_that_was_cut_off_makes_no_second_claim_when_its_link_heals():
    async def act(world):
        await world.admin.create("resourceclaimtemplates.resource.k8s.io", TEMPLATE)
        first = await world.leader()
        world.network.profile(first).faults = LinkFaults(cut="both")
        await pod(world, "a")

        await generated(world, "a")
        world.network.profile(first).faults = HEALTHY
        await asyncio.sleep(30)

        assert await world.leader() != first
        claims, _ = await world.admin.list("resourceclaims.resource.k8s.io", namespace="default")
        assert [each["metadata"]["generateName"] for each in claims] == ["a-dev-"]
        stored = await world.admin.get("pods", Key("default", "a"))
        assert len(stored["status"]["resourceClaimStatuses"]) == 1

    run(act)
