"""Volumes end to end: a real API server, the scheduler and the volume controllers in one loop of virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

from services.api.errors import ApiError
from services.api.identity import CONTROLLER_MANAGER
from services.api.meta import Document, Key
from services.api.wire import Request
from services.controllers.config import ControllersConfig
from services.controllers.wiring import build as build_controllers
from services.runtime.roles import controller_identities

ZONE = "topology.kubernetes.io/zone"
VOLUME_CONTROLLERS = ("persistentvolume-binder", "volume-protection", "ephemeral-volume", "gc")
SELECTED = "volume.kubernetes.io/selected-node"


async def start_controllers(world: Any) -> None:
    """Run the volume controllers beside the scheduler."""
    seams = world._seams("controllers", CONTROLLER_MANAGER, world.switches)
    seams.transport.identities = {identity.user: identity for identity in controller_identities()}
    config = ControllersConfig(name="controllers", controllers=VOLUME_CONTROLLERS, health_port=-1)
    controllers = build_controllers(config, seams)
    world.tasks.append(world.group.create_task(controllers.run()))
    await world.until(lambda: controllers.is_ready)


async def two_zones(world: Any) -> None:
    await world.node("n1", **{ZONE: "a"})
    await world.node("n2", **{ZONE: "b"})


async def storage_class(world: Any, name: str = "late", mode: str = "WaitForFirstConsumer", **fields: Any) -> None:
    await world.admin.create(
        "storageclasses.storage.k8s.io",
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name},
            "provisioner": "disk.example.com",
            "volumeBindingMode": mode,
            **fields,
        },
    )


async def claim(world: Any, name: str = "data", storage_class: str = "late", size: str = "1Gi") -> None:
    await world.admin.create(
        "persistentvolumeclaims",
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": storage_class,
                "resources": {"requests": {"storage": size}},
            },
        },
    )
    await asyncio.sleep(0.1)  # what follows should find it followed


async def volume(world: Any, name: str, zone: str, storage_class: str = "late", size: str = "1Gi") -> None:
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]
    await world.admin.create(
        "persistentvolumes",
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": size},
                "storageClassName": storage_class,
                "csi": {"driver": "disk.example.com", "volumeHandle": name},
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            },
        },
    )


def mounts(*names: str) -> dict[str, Any]:
    return {"volumes": [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": n}} for i, n in enumerate(names)]}


async def the_claim(world: Any, name: str = "data") -> Document:
    return await world.admin.get("persistentvolumeclaims", Key("default", name))


async def follow(world: Any, name: str, seen: list[tuple[str, str]]) -> None:
    """Note each pair (nominated node, node) the pod passes through."""
    while True:
        pod = await world.get(name)
        pair = (pod["status"].get("nominatedNodeName", ""), pod["spec"].get("nodeName", ""))
        if not seen or seen[-1] != pair:
            seen.append(pair)
        await asyncio.sleep(0.002)


def watched(world: Any, name: str) -> list[tuple[str, str]]:
    seen: list[tuple[str, str]] = []
    world.tasks.append(world.group.create_task(follow(world, name, seen)))
    return seen


def test_queue_18_a_pod_that_waits_for_its_volume_says_where_it_is_going_and_a_plain_one_never_does(play):
    async def scenario(world):
        await two_zones(world)
        await start_controllers(world)
        await storage_class(world)
        await claim(world)
        await world.pod("plain")
        plain = watched(world, "plain")
        await world.pod("p", nodeSelector={ZONE: "b"}, **mounts("data"))
        seen = watched(world, "p")
        took = await world.until(world.bound("p"))
        await asyncio.sleep(0.1)
        volume = (await world.admin.list("persistentvolumes"))[0][0]
        return seen, plain, took, await the_claim(world), volume, world.said("sched.bind_call", "p")

    seen, plain, took, bound, volume, calls = play(scenario, volumes__provision_s=3.0)

    assert seen == [("", ""), ("n2", ""), ("", "n2")]
    assert {nominated for nominated, _ in plain} == {""}
    assert 3.0 <= took < 4.0
    assert (bound["status"]["phase"], bound["metadata"]["annotations"][SELECTED]) == ("Bound", "n2")
    terms = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert terms[0]["matchExpressions"] == [{"key": ZONE, "operator": "In", "values": ["b"]}]
    assert volume["status"]["phase"] == "Bound"
    assert len(calls) == 1


def test_without_the_gate_no_status_says_where_a_pod_is_going(play):
    async def scenario(world):
        await two_zones(world)
        await start_controllers(world)
        await storage_class(world)
        await claim(world)
        await world.pod("p", **mounts("data"))
        seen = watched(world, "p")
        await world.until(world.bound("p"))
        await asyncio.sleep(0.1)
        return seen

    seen = play(scenario, NominatedNodeNameForExpectation=False)
    assert {nominated for nominated, _ in seen} == {""}


def test_without_the_clearing_gate_a_bound_pod_keeps_its_nomination(play):
    async def scenario(world):
        await two_zones(world)
        await start_controllers(world)
        await storage_class(world)
        await claim(world)
        await world.pod("p", **mounts("data"))
        await world.until(world.bound("p"))
        return await world.get("p")

    pod = play(scenario, ClearingNominatedNodeNameAfterBinding=False)
    assert pod["status"]["nominatedNodeName"] == pod["spec"]["nodeName"]


def test_an_existing_volume_draws_the_pod_to_where_it_can_be_reached(play):
    async def scenario(world):
        await two_zones(world)
        await start_controllers(world)
        await storage_class(world, provisioner="kubernetes.io/no-provisioner")
        await volume(world, "small-b", "b", size="2Gi")
        await volume(world, "large-b", "b", size="9Gi")
        await claim(world, size="2Gi")
        await world.pod("p", **mounts("data"))
        await world.until(world.bound("p"))
        return await world.node_of("p"), (await the_claim(world))["spec"]["volumeName"]

    assert play(scenario) == ("n2", "small-b")


def test_an_immediate_claim_fixes_the_zone_before_the_pod_is_looked_at(play):
    async def scenario(world):
        await two_zones(world)
        await start_controllers(world)
        await storage_class(
            world, "now", "Immediate", allowedTopologies=[{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}]
        )
        await claim(world, storage_class="now")

        async def is_bound() -> bool:
            return (await the_claim(world))["status"]["phase"] == "Bound"

        await world.until(is_bound)
        await asyncio.sleep(0.1)
        await world.pod("p", nodeSelector={ZONE: "b"}, **mounts("data"))
        await world.until(lambda: world.said("sched.attempt", "p"))
        return world.said("sched.attempt", "p")[0].data["message"]

    assert play(scenario, volumes__provision_s=0.5).startswith(
        "0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, "
        "1 node(s) didn't match Pod's node affinity/selector."
    )


def test_a_pod_waits_for_its_immediate_claim_and_is_woken_when_that_is_bound(play):
    async def scenario(world):
        await two_zones(world)
        await storage_class(world, "now", "Immediate")
        await claim(world, storage_class="now")
        await world.pod("p", **mounts("data"))
        await world.until(lambda: len(world.said("sched.attempt", "p")) == 1)
        message = world.said("sched.attempt", "p")[0].data["message"]
        await start_controllers(world)
        await world.until(world.bound("p"))
        return message

    message = play(scenario, volumes__provision_s=0.5)
    assert message.startswith("0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found")


def test_two_pods_never_get_one_volume(play):
    async def scenario(world):
        await two_zones(world)
        await start_controllers(world)
        await storage_class(world, provisioner="kubernetes.io/no-provisioner")
        for name, zone in (("va", "a"), ("vb", "b")):
            await volume(world, name, zone)
        for name in ("one", "two"):
            await claim(world, name)
            await world.pod(name, **mounts(name))
        await world.until(world.bound("one"))
        await world.until(world.bound("two"))
        return sorted([(await the_claim(world, name))["spec"]["volumeName"] for name in ("one", "two")])

    assert play(scenario) == ["va", "vb"]


def test_volumes_that_take_too_long_send_the_pod_back_with_the_reason(play):
    async def scenario(world):
        await two_zones(world)
        await storage_class(world)
        await claim(world)
        await world.pod("p", **mounts("data"))
        took = await world.until(lambda: world.said("sched.attempt", "p")[1:], 700.0)
        await asyncio.sleep(0.2)
        pod = await world.get("p")
        return took, world.condition(pod), pod["status"].get("nominatedNodeName", ""), await the_claim(world)

    took, condition, nominated, pvc = play(scenario)
    assert 600.0 <= took < 601.0
    assert (condition["reason"], nominated) == ("SchedulerError", "")
    assert condition["message"] == (
        'running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded'
    )
    assert SELECTED in pvc["metadata"]["annotations"], "what was written stays written"


def test_a_provisioner_that_gives_up_sends_the_pod_back_to_choose_again(play):
    async def scenario(world):
        await two_zones(world)
        await storage_class(world)
        await claim(world)
        await world.pod("p", **mounts("data"))

        async def chosen() -> str:
            return str((await the_claim(world))["metadata"].get("annotations", {}).get(SELECTED, ""))

        await world.until(chosen)
        node = await chosen()
        await world.admin.patch("nodes", Key("", node), {"spec": {"unschedulable": True}})
        patch = {"metadata": {"annotations": {SELECTED: None}}}
        await world.admin.patch("persistentvolumeclaims", Key("default", "data"), patch)
        await world.until(lambda: world.said("sched.attempt", "p")[1:])
        message = world.said("sched.attempt", "p")[1].data["message"]
        await start_controllers(world)
        await world.until(world.bound("p"))
        return message, node, await world.node_of("p")

    message, first, second = play(scenario)
    assert message.endswith('binding volumes: provisioning failed for PVC "data"')
    assert {first, second} == {"n1", "n2"}


def test_a_pod_deleted_while_its_volume_is_made_lets_the_next_pod_have_the_claim(play):
    async def scenario(world):
        await two_zones(world)
        await storage_class(world)
        await claim(world)
        pod = await world.pod("p", **mounts("data"))
        await world.until(lambda: world.said("sched.assume", "p"))
        await asyncio.sleep(0.5)
        await world.admin.delete("pods", Key("default", "p"), uid=pod["metadata"]["uid"])
        await world.pod("q", **mounts("data"))
        await asyncio.sleep(0.5)
        await start_controllers(world)
        await world.until(world.bound("q"))
        return len(world.said("sched.bind_call", "p")), await world.node_of("q"), await the_claim(world)

    calls, node, bound = play(scenario)
    assert calls == 0
    assert bound["metadata"]["annotations"][SELECTED] == node


def test_a_refused_write_of_a_volume_is_an_error_and_is_tried_again(play):
    async def scenario(world):
        await two_zones(world)
        await start_controllers(world)
        await storage_class(world)
        await claim(world)
        refusals = 0

        async def hook(request: Request, call: Any) -> Any:
            nonlocal refusals
            if request.resource == "persistentvolumeclaims" and request.verb == "patch" and not refusals:
                refusals += 1
                raise ApiError("etcd is away")
            return await call(request)

        world.hook = hook
        await world.pod("p", **mounts("data"))
        await world.until(world.bound("p"))
        return [line.data["outcome"] for line in world.said("sched.attempt", "p")]

    assert play(scenario) == ["scheduled", "error", "scheduled"]


def test_an_ephemeral_volume_comes_and_goes_with_its_pod(play):
    async def scenario(world):
        await two_zones(world)
        await start_controllers(world)
        await storage_class(world)
        template = {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "late",
                "resources": {"requests": {"storage": "1Gi"}},
            }
        }
        pod = await world.pod("p", volumes=[{"name": "tmp", "ephemeral": {"volumeClaimTemplate": template}}])
        await world.until(world.bound("p"))
        bound = await the_claim(world, "p-tmp")
        await world.admin.delete("pods", Key("default", "p"), uid=pod["metadata"]["uid"], grace_period_s=0)

        async def is_empty() -> bool:
            claims, _ = await world.admin.list("persistentvolumeclaims")
            volumes, _ = await world.admin.list("persistentvolumes")
            return not claims and not volumes

        await world.until(is_empty)
        return bound["status"]["phase"]

    assert play(scenario) == "Bound"


def test_queue_17_a_hint_from_outside_is_followed_when_it_fits_and_cleared_after_a_failure_when_it_does_not(play):
    async def scenario(world):
        await world.node("n1", cpu="4")
        await world.node("n9", cpu="8")
        hinted = {"status": {"nominatedNodeName": "n1"}}
        found = {}
        for name, cpu, node in (("fits", "1", "n1"), ("wrong", "1", "nowhere"), ("large", "9", "n1")):
            await world.pod(name, cpu=cpu, schedulingGates=[{"name": "example.com/wait"}])
            hinted["status"]["nominatedNodeName"] = node
            await world.admin.patch("pods", Key("default", name), hinted, subresource="status")
            await world.admin.patch("pods", Key("default", name), {"spec": {"schedulingGates": None}})
        for name in ("fits", "wrong"):
            await world.until(world.bound(name))
            found[name] = await world.node_of(name)
        await world.until(lambda: world.said("sched.attempt", "large"))
        await asyncio.sleep(0.2)
        return found, (await world.get("large"))["status"].get("nominatedNodeName", "")

    found, left = play(scenario)
    assert found == {"fits": "n1", "wrong": "n9"}, "a good hint beats a better score; a wrong one counts for nothing"
    assert left == ""


def test_a_pod_whose_claims_class_does_not_exist_is_rejected_once_and_woken_by_the_class(play):
    async def scenario(world):
        await two_zones(world)
        await start_controllers(world)
        await claim(world, storage_class="late")
        await world.pod("p", **mounts("data"))
        await world.until(lambda: world.said("sched.attempt", "p"))
        await asyncio.sleep(30.0)
        attempts = [line.data for line in world.said("sched.attempt", "p")]
        await storage_class(world)
        await world.until(world.bound("p"), limit_s=10.0)
        return [(each["outcome"], each["plugins"], each["message"].partition(" no new")[0]) for each in attempts]

    words = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
    assert play(scenario) == [("unschedulable", ["VolumeBinding"], words)]
