"""The example of an out-of-tree owner of claims: it releases, survives its own end, and says what it may not (KEP-5194)."""

import asyncio
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from apiserver_fake.registry.authorization import authorizer
from lab.scenarios.simulation import simloop
from lab.scenarios.simulation.lifetime import Lifetime
from services.api.identity import SCHEDULER, Identity
from services.api.meta import Key
from services.runtime.roles import Role
from tests.component.controllers.conftest import World

EXAMPLE = Path(__file__).parents[2] / "examples" / "train-job"
CLAIMS, WORKLOADS = "resourceclaims.resource.k8s.io", "workloads.scheduling.k8s.io"
TRAIN = Key("default", "train")
ALLOCATED = {"devices": {"results": [{"request": "devices", "driver": "d", "pool": "p", "device": "gpu-0"}]},
             "reservedForAnyPod": True}  # fmt: skip


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import keplab_train_job

    yield keplab_train_job
    sys.modules.pop("keplab_train_job", None)


@pytest.fixture
def permit(monkeypatch):
    """Give the example's user its role, as an administrator would, without some of its rules."""

    def grant(*without):
        role = msgspec.yaml.decode((EXAMPLE / "role.yaml").read_bytes(), type=Role)
        mine = replace(role, rules=tuple(rule for rule in role.rules if rule.name not in without))
        known = (*built_in, mine)
        monkeypatch.setattr(authorizer, "roles", lambda: known)
        authorizer.forget_rules()

    built_in = authorizer.roles()
    yield grant
    authorizer.forget_rules()


class TrainWorld(World):
    """An API server and the example's process; the test is scheduler and kubelet."""

    def __init__(self, example, **switches):
        given = [f"{name}={value}" for name, value in switches.items()]
        super().__init__(switches=["reserved_for.mode=kep5194", "GenericWorkload=true", *given])
        self.example = example

    async def start(self):
        self.incarnations += 1
        self.life = Lifetime("train-job", self.incarnations)
        user = Identity(self.example.USER)
        self.manager = self.example.build(None, self.seams("train-job", self.life, user, [user]))
        self.task = asyncio.create_task(self.manager.run())
        self.life.adopt(self.task)
        await self.until(lambda: self.manager.is_ready)

    async def train(self, workers):
        marks = {self.example.WORKERS: str(workers), self.example.DEVICE_CLASS: "gpu"}
        spec = {"podGroupTemplates": [{"name": "workers", "schedulingPolicy": {"basic": {}}}]}
        head = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "Workload"}
        meta = {"name": "train", "namespace": "default", "annotations": marks}
        await self.admin.create(WORKLOADS, {**head, "metadata": meta, "spec": spec})
        await self.until(lambda: self.has_pods(workers))
        await self.until(self.claim)

    async def has_pods(self, count):
        return len(await self.pods()) == count

    async def claim(self):
        found, _ = await self.admin.list(CLAIMS, namespace="default")
        return found[0] if found else None

    async def consumers(self):
        return [each["name"] for each in (await self.claim())["status"].get("reservedFor", ())]

    async def reserve(self, *more):
        """Write what the scheduler writes with the first pod: the devices, and the claim's own reference."""
        claim = await self.claim()
        status = {"allocation": ALLOCATED, "reservedFor": [claim["spec"]["reservedFor"], *more]}
        await self.client(SCHEDULER).patch(CLAIMS, TRAIN, {"status": status}, subresource="status")

    async def end(self, *names):
        for name in names:
            await self.admin.patch(
                "pods", Key("default", name), {"status": {"phase": "Succeeded"}}, subresource="status"
            )

    async def messages(self, reason):
        events, _ = await self.admin.list("events", namespace="default")
        return [each["message"] for each in events if each["reason"] == reason]


def play(example, act, **switches):
    async def main():
        async with TrainWorld(example, **switches) as world:
            return await act(world)

    return simloop.run(main(), seed=1)


def test_kep_5194_15_an_out_of_tree_owner_makes_its_claim_first_and_releases_it_last(example, permit):
    permit()

    async def act(world):
        await world.train(2)
        await world.reserve()
        claim = await world.claim()
        workload = await world.admin.get(WORKLOADS, TRAIN)
        await world.end("train-0")
        await asyncio.sleep(5)
        before = await world.consumers()
        await world.end("train-1")
        await world.until(lambda: _is_free(world))
        return claim, workload, before, await world.messages("ClaimReleased")

    claim, workload, before, released = play(example, act)

    assert claim["spec"]["reservedFor"]["uid"] == workload["metadata"]["uid"]
    assert workload["metadata"]["finalizers"] == ["resource.emulation/claim-release"]
    assert before == ["train"]
    assert released == ["released claim default/train"]


def test_kep_5194_15_an_owner_that_was_killed_finds_its_claims_again(example, permit):
    permit()

    async def act(world):
        await world.train(2)
        await world.reserve()
        world.kill()
        await world.end("train-0", "train-1")
        await asyncio.sleep(30)
        while_away = await world.consumers()
        await world.start()
        await world.until(lambda: _is_free(world))
        return while_away, len(await world.pods())

    assert play(example, act) == (["train"], 2)


def test_kep_5194_15_without_the_right_to_write_claims_the_claim_stays_and_an_event_says_why(example, permit):
    permit("release-claims")

    async def act(world):
        await world.train(1)
        await world.reserve()
        await world.end("train-0")
        await world.until(lambda: world.messages("ClaimReleaseBlocked"))
        return await world.consumers(), await world.messages("ClaimReleaseBlocked")

    consumers, (blocked,) = play(example, act)

    assert consumers == ["train"]
    assert blocked.startswith("claim default/train cannot be released: ")
    assert 'is forbidden: User "system:serviceaccount:default:train-job" cannot patch' in blocked


def test_kep_5194_15_an_out_of_tree_owner_waits_for_pods_that_are_listed_beside_it(example, permit):
    permit()

    async def act(world):
        await world.train(1)
        await world.reserve({"resource": "pods", "name": "train-0", "uid": "u0"})
        await world.end("train-0")
        await asyncio.sleep(5)
        mixed = await world.consumers()
        await world.reserve()
        await world.until(lambda: _is_free(world))
        return mixed

    assert play(example, act) == ["train", "train-0"]


async def _is_free(world):
    return await world.consumers() == []
