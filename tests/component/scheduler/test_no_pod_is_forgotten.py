"""Whatever happens, a pod that fits somewhere is not left among the unschedulable until the flush finds it.

Random scenarios are played on a real API server and a real scheduler in virtual time. When all is quiet, every pod
without a node must be known to the queue, a gated one must still be gated, and a fresh look must find no node for
any that waits for an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final

import pytest

from scheduler.cache.node_info import PodInfo
from scheduler.cycle.result import ScheduleResult
from scheduler.queue.scheduling_queue import UNSCHEDULABLE_STAY_S, Pool
from services.api.errors import ApiError, NotFound
from services.api.meta import Key
from services.api.wire import Response
from tests.component.scheduler.test_volumes import start_controllers

ZONE: Final = "topology.kubernetes.io/zone"
APP: Final = "app"
NODES: Final = ("n0", "n1", "n2")
PODS: Final = tuple(f"p{i}" for i in range(7))
ZONES: Final = ("", "a", "b")
COLOURS: Final = ("", "red", "blue", "5")
APPS: Final = ("", "x", "y")
PARKED: Final = (Pool.UNSCHEDULABLE, Pool.GATED)


def _selects(app: str) -> dict[str, Any]:
    return {"matchLabels": {APP: app}}


def _near(app: str, **more: Any) -> dict[str, Any]:
    return {"labelSelector": _selects(app), "topologyKey": ZONE, **more}


def _required(kind: str, *terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def _on_nodes(key: str, operator: str, *values: str, fields: str = "matchExpressions") -> dict[str, Any]:
    term = {fields: [{"key": key, "operator": operator, "values": list(values)}]}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    }


def _spread(**more: Any) -> dict[str, Any]:
    rule = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": _selects("x")}
    return {"topologySpreadConstraints": [{**rule, **more}]}


WANTS: Final[dict[str, dict[str, Any]]] = {
    "anything": {},
    "port": {"hostPort": 80},
    "red": {"nodeSelector": {"colour": "red"}},
    "not-red": _on_nodes("colour", "NotIn", "red"),
    "more-than-4": _on_nodes("colour", "Gt", "4"),
    "n1": _on_nodes("metadata.name", "In", "n1", fields="matchFields"),
    "tolerant": {"tolerations": [{"key": "t", "operator": "Exists"}]},
    "alone": _required("podAntiAffinity", _near("x")),
    "near-x": _required("podAffinity", _near("x")),
    "near-anybody": _required("podAffinity", _near("x", namespaceSelector={"matchLabels": {"team": "t"}})),
    "even": _spread(),
    "even-red": {**_spread(), "nodeSelector": {"colour": "red"}},
    "even-honest": _spread(nodeTaintsPolicy="Honor", minDomains=2),
    "gated": {"schedulingGates": [{"name": "g"}]},
    "claim": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]},
    "device": {"resourceClaims": [{"name": "d", "resourceClaimName": "gpu"}]},
    "matters": {"priority": 100},
}

Deed = tuple[Any, ...]


def drawn(seed: int) -> list[Deed]:
    """Return the deeds of a scenario; most are about few pods and nodes, so that they meet."""
    random = Random(seed)
    one = random.choice
    kinds: dict[str, Callable[[], Deed]] = {
        "add_node": lambda: (one(NODES), one(ZONES), one(COLOURS), one(("1", "2"))),
        "delete_node": lambda: (one(NODES),),
        "label": lambda: (one(NODES), one(ZONES), one(COLOURS)),
        "taint": lambda: (one(NODES), one((True, False))),
        "cordon": lambda: (one(NODES), one((True, False))),
        "resize": lambda: (one(NODES), one(("1", "2", "3")), one(("1", "2", "110"))),
        "add_pod": lambda: (one(PODS), one(tuple(WANTS)), one(APPS), one(("0", "0", "0", "1", "2"))),
        "delete_pod": lambda: (one(PODS),),
        "call": lambda: (one(PODS), one(APPS)),
        "tolerate": lambda: (one(PODS),),
        "ungate": lambda: (one(PODS),),
        "finish": lambda: (one(PODS),),
        "refuse": lambda: (),
        "claim": lambda: (one((True, False)),),
        "volume": lambda: (one(("a", "b")), one((True, False))),
        "storage_class": lambda: (one(("", "a", "b")),),
        "team": lambda: (one((True, False)),),
        "device": lambda: (one((True, False)),),
        "wait": lambda: (one((0.0, 0.05, 1.5)),),
    }
    often = (*kinds, *["add_pod"] * 4, "resize", "delete_pod", "wait")
    names = [one(often) for _ in range(random.randint(15, 60))]
    return [(name, *kinds[name]()) for name in names]


class Deeds:
    """Each does what it can: what is refused, or is about something that does not exist, changes nothing."""

    def __init__(self, world: Any) -> None:
        self._world, self._admin = world, world.admin

    async def add_node(self, name: str, zone: str, colour: str, cpu: str) -> None:
        await self._world.node(name, cpu=cpu, **_labels(zone, colour))

    async def delete_node(self, name: str) -> None:
        await self._admin.delete("nodes", Key("", name))

    async def label(self, name: str, zone: str, colour: str) -> None:
        labels = {ZONE: zone or None, "colour": colour or None}
        await self._admin.patch("nodes", Key("", name), {"metadata": {"labels": labels}})

    async def taint(self, name: str, is_tainted: bool) -> None:
        taints = [{"key": "t", "effect": "NoSchedule"}] if is_tainted else None
        await self._admin.patch("nodes", Key("", name), {"spec": {"taints": taints}})

    async def cordon(self, name: str, is_cordoned: bool) -> None:
        await self._admin.patch("nodes", Key("", name), {"spec": {"unschedulable": is_cordoned}})

    async def resize(self, name: str, cpu: str, pods: str) -> None:
        amounts = {"cpu": cpu, "pods": pods}
        await self._admin.patch("nodes", Key("", name), {"status": {"allocatable": amounts}}, subresource="status")

    async def add_pod(self, name: str, wants: str, app: str, cpu: str) -> None:
        spec = dict(WANTS[wants])
        port = spec.pop("hostPort", 0)
        container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
        if port:
            container["ports"] = [{"containerPort": port, "hostPort": port}]
        labels = {APP: app} if app else {}
        await self._admin.create(
            "pods",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default", "labels": labels},
                "spec": {"containers": [container], **spec},
            },
        )

    async def delete_pod(self, name: str) -> None:
        await self._admin.delete("pods", Key("default", name), grace_period_s=0)

    async def call(self, name: str, app: str) -> None:
        await self._admin.patch("pods", Key("default", name), {"metadata": {"labels": {APP: app or None}}})

    async def tolerate(self, name: str) -> None:
        tolerations = (await self._world.get(name))["spec"].get("tolerations", [])
        more = [*tolerations, {"key": "t", "operator": "Exists"}]
        await self._admin.patch("pods", Key("default", name), {"spec": {"tolerations": more}})

    async def ungate(self, name: str) -> None:
        await self._admin.patch("pods", Key("default", name), {"spec": {"schedulingGates": None}})

    async def finish(self, name: str) -> None:
        if await self._world.node_of(name):
            await self._admin.patch(
                "pods", Key("default", name), {"status": {"phase": "Succeeded"}}, subresource="status"
            )

    async def claim(self, exists: bool) -> None:
        if not exists:
            await self._admin.delete("persistentvolumeclaims", Key("default", "data"))
            return
        await self._admin.create(
            "persistentvolumeclaims",
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "data", "namespace": "default"},
                "spec": {
                    "accessModes": ["ReadWriteOncePod"],
                    "storageClassName": "late",
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            },
        )

    async def volume(self, zone: str, exists: bool) -> None:
        if not exists:
            await self._admin.delete("persistentvolumes", Key("", f"v-{zone}"))
            return
        terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]
        await self._admin.create(
            "persistentvolumes",
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"v-{zone}"},
                "spec": {
                    "accessModes": ["ReadWriteOncePod"],
                    "capacity": {"storage": "1Gi"},
                    "storageClassName": "late",
                    "csi": {"driver": "disk.example.com", "volumeHandle": zone},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
                },
            },
        )

    async def storage_class(self, zone: str) -> None:
        with suppress(NotFound):
            await self._admin.delete("storageclasses.storage.k8s.io", Key("", "late"))
        more = {}
        if zone:
            more["allowedTopologies"] = [{"matchLabelExpressions": [{"key": ZONE, "values": [zone]}]}]
        await self._admin.create(
            "storageclasses.storage.k8s.io",
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": "late"},
                "provisioner": "disk.example.com",
                "volumeBindingMode": "WaitForFirstConsumer",
                **more,
            },
        )

    async def team(self, is_member: bool) -> None:
        labels = {"team": "t" if is_member else None}
        await self._admin.patch("namespaces", Key("", "default"), {"metadata": {"labels": labels}})

    async def device(self, exists: bool) -> None:
        resource = "resourceclaims.resource.k8s.io"
        if not exists:
            await self._admin.delete(resource, Key("default", "gpu"))
            return
        await self._admin.create(
            resource,
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": "gpu", "namespace": "default"},
                "spec": {"devices": {}},
            },
        )

    async def refuse(self) -> None:
        """Have the API server refuse the next binding, for no reason that the scheduler could know."""
        before = self._world.hook

        async def once(request: Any, call: Any) -> Any:
            if request.subresource != "binding":
                return await before(request, call)
            self._world.hook = before
            return Response(code=409, body=b'{"reason":"Conflict","message":"no","code":409}')

        self._world.hook = once

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def _labels(zone: str, colour: str) -> dict[str, str]:
    return {key: value for key, value in ((ZONE, zone), ("colour", colour)) if value}


async def forgotten(world: Any) -> list[str]:
    """Wait until no pod is about to be tried, and return those that should have been."""
    core = world.scheduler._core
    busy = [pool for pool in Pool if pool not in (*PARKED, Pool.NONE)]

    def is_quiet() -> bool:
        # Without any node pods are tried again by the clock, for ever: nothing is forgotten.
        return not core.cache.nodes or not any(core.queue.pools[pool] for pool in busy)

    await world.until(is_quiet, limit_s=UNSCHEDULABLE_STAY_S / 2)
    await asyncio.sleep(0.2)
    await world.until(is_quiet, limit_s=UNSCHEDULABLE_STAY_S / 2)
    found = []
    for document in (await world.admin.list("pods", namespace="default"))[0]:
        key = Key("default", document["metadata"]["name"])
        queued = core.queue.get(key)
        if document["spec"].get("nodeName") or document["metadata"].get("deletionTimestamp"):
            continue
        if queued is None:
            if document["metadata"]["uid"] not in core.cache.pods:
                found.append(f"{key} is in no queue")
            continue
        profile, info = core.profiles.of(queued.info), PodInfo(queued.info.pod)
        if queued.pool is Pool.GATED:
            if profile.runner.pre_enqueue(info).is_success:
                found.append(f"{key} is gated by {queued.gating_plugin} no more")
            continue
        result = profile.cycle.schedule(info, world.clock.now(), with_post_filter=False)
        if isinstance(result, ScheduleResult):
            found.append(f"{key}, rejected by {sorted(queued.rejectors)}, fits {result.node_name}")
    return found


def run_all(play: Any, deeds: Sequence[Deed]) -> list[str]:
    """Return which pods are forgotten at the end of the scenario."""

    async def scenario(world: Any) -> list[str]:
        await start_controllers(world)
        will = Deeds(world)
        for name, *of in deeds:
            with suppress(ApiError):
                await getattr(will, name)(*of)
        return await forgotten(world)

    found: list[str] = play(scenario, interpodaffinity__faithful_hints=False)
    return found


START: Final = (("add_node", "n0", "a", "red", "1"), ("add_node", "n1", "b", "", "2"))


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_no_pod_that_fits_is_forgotten(play, seed):
    deeds = drawn(seed)
    assert run_all(play, (*START, *deeds)) == [], deeds


A_LIKE_POD_ON_N0: Final = (
    ("add_node", "n0", "a", "red", "1"), ("wait", 0.1), ("add_pod", "p0", "red", "x", "1"), ("wait", 0.3),
)  # fmt: skip


@pytest.mark.parametrize(
    "deeds",
    [
        pytest.param((
            *START, ("add_pod", "p0", "near-anybody", "x", "0"), ("wait", 2.0), ("team", True),
        ), id="the namespace of those it wants is labelled"),
        pytest.param((
            *A_LIKE_POD_ON_N0, ("add_node", "n1", "b", "", "2"), ("taint", "n0", True), ("wait", 0.2),
            ("add_pod", "p1", "near-x", "x", "1"), ("wait", 2.0), ("delete_pod", "p0"),
        ), id="the last pod like it goes, so it may be the first anywhere"),
        pytest.param((
            *A_LIKE_POD_ON_N0, ("add_node", "n1", "b", "", "2"), ("taint", "n0", True), ("wait", 0.2),
            ("add_pod", "p1", "near-x", "x", "1"), ("wait", 2.0), ("call", "p0", "y"),
        ), id="the last pod like it is called otherwise"),
        pytest.param((
            *A_LIKE_POD_ON_N0, ("add_node", "n1", "b", "", "2"), ("wait", 0.2),
            ("add_pod", "p1", "near-x", "x", "1"), ("wait", 2.0), ("delete_node", "n0"),
        ), id="the node of the last pod like it goes"),
        pytest.param((
            *A_LIKE_POD_ON_N0, ("add_node", "n1", "a", "", "2"), ("wait", 0.2),
            ("add_pod", "p1", "alone", "y", "1"), ("wait", 2.0), ("delete_node", "n0"),
        ), id="the node of the pod it avoids goes"),
        pytest.param((
            ("add_node", "n0", "a", "red", "2"), ("wait", 0.1), ("add_pod", "p0", "red", "x", "1"), ("wait", 0.3),
            ("add_node", "n1", "b", "red", "1"), ("wait", 0.2), ("add_pod", "p1", "n1", "", "1"), ("wait", 0.3),
            ("add_pod", "p2", "even-red", "x", "1"), ("wait", 2.0), ("label", "n1", "b", "blue"),
        ), id="a node that its selector means no more takes the emptiest domain with it"),
    ],
)  # fmt: skip
def test_what_upstream_leaves_to_the_flush_wakes_the_pod_here(play, deeds):
    assert run_all(play, (*deeds, ("wait", 0.5))) == []
