"""What a node tries that it may not: row by row, through the server, with one answer and nothing changed (AS-33)."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import random
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.registry.authorization.node import NODE_TEXT
from apiserver_fake.wiring import build
from lab.scenarios.simulation import simloop
from services.api.errors import ApiError
from services.api.identity import ADMIN, ANONYMOUS, SCHEDULER, Identity, controller_identity, node_identity
from services.api.seams import Seams
from services.api.switches import Switches
from services.api.wire import Request, WatchRequest
from services.runtime.real import MemoryDisk, NoTransport
from services.telemetry.eventlog import NullEventLog
from services.telemetry.traces import Tracer

N1 = node_identity("n1")
NODES, PODS, LEASES = "nodes", "pods", "leases.coordination.k8s.io"
SLICES, CLAIMS, CSINODES = "resourceslices.resource.k8s.io", "resourceclaims.resource.k8s.io", "csinodes.storage.k8s.io"
MIRROR = {"kubernetes.io/config.mirror": "h"}
A_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "name": "free", "uid": "u"}


class LoopClock:
    """Virtual time."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return 1_800_000_000 + self.now()


Row = tuple[str, str, str, Any, dict[str, str]]


def own(change: Any) -> list[Row]:
    """A change of the own Node, by every kind of patch."""
    steps = [
        {"op": "add", "path": f"/{part}/{name}", "value": value}
        for part, values in change.items()
        for name, value in values.items()
    ]
    return [
        ("patch", NODES, "n1", body, {"patch_type": patch}) for patch, body in
        (("merge", change), ("strategic", change), ("json", steps))
    ]  # fmt: skip


def meta(**fields: Any) -> Any:
    return {"metadata": fields}


def mirror(spec: Any = None, **fields: Any) -> Any:
    """A mirror pod as n1 may make it, but for what is said."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "THE-UID-OF-N1", "controller": True}
    head = {"name": "m", "namespace": "default", "annotations": MIRROR, "ownerReferences": [owner], **fields}
    return {"metadata": head, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i:1"}], **(spec or {})}}


def pod_status(**status: Any) -> list[Any]:
    change = {"status": {"observedGeneration": 9, **status}}
    return [(
        "patch", PODS, "mine", change, {"subresource": "status", "patch_type": patch}
    ) for patch in ("merge", "strategic")]  # fmt: skip


ROWS: dict[str, list[Row]] = {
    "X-NR1": [
        ("get", NODES, "n2", None, {}), ("list", NODES, "", None, {}), ("delete", NODES, "n1", None, {}),
        ("create", NODES, "", meta(name="n9"), {}), ("get", NODES, "absent", None, {}),
        ("patch", NODES, "n2", {"spec": {"unschedulable": True}}, {"patch_type": "merge"}),
        ("patch", NODES, "n2", {"status": {"capacity": {"cpu": "1"}}}, {"patch_type": "merge", "subresource": "status"}),
        ("deletecollection", NODES, "", None, {}),
        ("list", NODES, "", None, {"field_selector": "metadata.name=n2"}),
        ("list", NODES, "", None, {"field_selector": "metadata.name!=n2"}),
    ],
    "X-NR2": [
        *own(meta(ownerReferences=[A_MAP])), *own(meta(finalizers=["example.com/keep"])),
        *own({"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}}),
        ("patch", NODES, "n1", {"spec": {"taints": None}}, {"patch_type": "merge"}),
    ],
    "X-NR3": [
        *own(meta(labels={"node-restriction.kubernetes.io/trusted": "yes"})),
        *own(meta(labels={"node-role.kubernetes.io/control-plane": ""})),
        *own(meta(labels={"topology.kubernetes.io/zone": "elsewhere"})),
        *own(meta(labels={"disk": "ssd"})),
        ("patch", NODES, "n1", meta(labels={"zone-of-admin": None}), {"patch_type": "merge"}),
    ],
    "X-NR5": [
        ("create", LEASES, "", meta(name="n2"), {"namespace": "kube-node-lease"}),
        ("create", LEASES, "", meta(name="n1"), {"namespace": "default"}),
        ("get", LEASES, "kube-scheduler", None, {"namespace": "kube-system"}),
        ("list", LEASES, "", None, {"namespace": "kube-node-lease"}),
        ("create", LEASES, "", meta(name="n1", ownerReferences=[A_MAP]), {"namespace": "kube-node-lease"}),
        ("create", CSINODES, "", meta(name="n2"), {}), ("list", CSINODES, "", None, {}),
        ("create", CSINODES, "", meta(name="n1", ownerReferences=[A_MAP]), {}),
    ],
    "X-NR6": [
        ("list", PODS, "", None, {}), ("list", PODS, "", None, {"field_selector": "spec.nodeName!=n2"}),
        ("list", PODS, "", None, {"field_selector": "spec.nodeName=n2"}),
        ("list", PODS, "", None, {"field_selector": "spec.nodeName=n1,metadata.name=mine"}),
        ("get", PODS, "theirs", None, {}), ("get", PODS, "free", None, {}), ("get", PODS, "absent", None, {}),
    ],
    "X-NR7": [
        ("create", PODS, "", mirror(annotations={}), {}), ("create", PODS, "", mirror(ownerReferences=[]), {}),
        ("create", PODS, "", mirror(ownerReferences=[A_MAP]), {}),
        ("create", PODS, "", mirror({"nodeName": "n2"}), {}), ("create", PODS, "", mirror({"nodeName": ""}), {}),
        ("create", PODS, "", mirror({"serviceAccountName": "default"}), {}),
        ("create", PODS, "", mirror({"resourceClaims": [{"name": "d", "resourceClaimName": "used"}]}), {}),
        ("create", PODS, "", mirror({"volumes": [{"name": "v", "secret": {"secretName": "used"}}]}), {}),
        ("create", PODS, "", mirror({"volumes": [{"name": "v", "configMap": {"name": "used"}}]}), {}),
        ("patch", PODS, "mine", meta(annotations=MIRROR), {"patch_type": "merge"}),
        ("patch", PODS, "mine", {"spec": {"resourceClaims": [{"name": "x"}]}, "status": {"observedGeneration": 9}},
         {"patch_type": "merge", "subresource": "status"}),
        ("patch", PODS, "mine", {"spec": {"containers": []}}, {"patch_type": "merge", "subresource": "resize"}),
        ("patch", PODS, "mine", {"spec": {"ephemeralContainers": []}},
         {"patch_type": "merge", "subresource": "ephemeralcontainers"}),
    ],
    "X-NR8": [
        ("delete", PODS, "theirs", None, {}), ("delete", PODS, "free", None, {}), ("delete", PODS, "absent", None, {}),
        ("delete", PODS, "mine", {"gracePeriodSeconds": 0}, {}),
        ("deletecollection", PODS, "", None, {"field_selector": "spec.nodeName=n1"}),
    ],
    "X-NR9": [
        ("create", PODS, name, meta(name=name), {"subresource": "eviction"}) for name in ("theirs", "free", "absent")
    ],
    "X-NR10": [
        *pod_status(nominatedNodeName="n2"), *pod_status(bindingGeneration=99), *pod_status(unbindCount=1),
        *pod_status(resourceClaimStatuses=[{"name": "d", "resourceClaimName": "c"}]),
        ("patch", PODS, "theirs", {"status": {"phase": "Failed"}}, {"subresource": "status", "patch_type": "merge"}),
        ("patch", PODS, "absent", {"status": {"phase": "Failed"}}, {"subresource": "status", "patch_type": "merge"}),
    ],
    "X-NR11": [
        ("create", SLICES, "", {**meta(name="s"), "spec": {"driver": "d.example.com", "nodeName": node,
         "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}}, {}) for node in ("n2", "")
    ] + [
        ("get", SLICES, "absent", None, {}), ("list", SLICES, "", None, {}), ("deletecollection", SLICES, "", None, {}),
        ("list", SLICES, "", None, {"field_selector": "spec.nodeName=n2"}),
    ],
    "X-NR12": [
        ("get", CLAIMS, "unused", None, {}), ("get", CLAIMS, "absent", None, {}), ("list", CLAIMS, "", None, {}),
        ("create", CLAIMS, "", meta(name="c"), {}), ("delete", CLAIMS, "used", None, {}),
        ("patch", CLAIMS, "used", {"status": {"allocation": None}}, {"patch_type": "merge", "subresource": "status"}),
        ("patch", CLAIMS, "used", {"status": {"reservedFor": []}}, {"patch_type": "merge", "subresource": "status"}),
    ],
    "X-NR13": [
        (verb, kind, name, None, {})
        for kind in ("secrets", "configmaps", "persistentvolumeclaims")
        for verb, name in (("get", "unused"), ("get", "absent"), ("list", ""), ("delete", "used"))
    ],
    "X-NR14": [
        ("create", "serviceaccounts", name, {}, {"subresource": "token"}) for name in ("other", "absent", "")
    ],
    "X-NR15": [
        ("create", "events", "", {**meta(name="e", namespace="default"), "source": {"host": "n2"}}, {}),
        ("create", "events", "", {**meta(name="e", namespace="default"), "reportingInstance": "n2"}, {}),
        ("create", "events", "", meta(name="e", namespace="default"), {}),
        ("list", "events", "", None, {}), ("delete", "events", "absent", None, {}),
    ],
    "X-NR16": [
        ("create", PODS, "free", {"target": {"name": "n1"}}, {"subresource": "binding"}),
        ("list", "namespaces", "", None, {}), ("create", "priorityclasses.scheduling.k8s.io", "", meta(name="x"), {}),
        ("list", "deployments.apps", "", None, {}), ("get", "statehash", "", None, {}),
    ],
}  # fmt: skip
CLUSTER_WIDE = (NODES, SLICES, CSINODES, "namespaces", "priorityclasses.scheduling.k8s.io", "statehash")


@asynccontextmanager
async def a_server() -> Any:
    """A server with pods on n1, on n2 and on none; n1's uses what is called `used`."""
    clock, rng = LoopClock(), random.Random(3)
    seams = Seams(
        component="apiserver", clock=clock, random=rng, disk=MemoryDisk(), transport=NoTransport(),
        events=NullEventLog(), tracer=Tracer("apiserver", clock=clock, random=rng, sinks=()), switches=Switches(),
    )  # fmt: skip
    component = build(ApiServerConfig(engine="memory", grpc_port=None, rest_port=None, state_hash=True), seams)
    task = asyncio.create_task(component.run())
    await component.server.wait_until_ready()

    async def call(identity: Identity, verb: str, resource: str, name: str = "", body: Any = None, **more: str) -> Any:
        namespace = more.pop("namespace", "" if resource in CLUSTER_WIDE else "default")
        encoded = b"" if body is None else msgspec.json.encode(body)
        request = Request(verb=verb, resource=resource, name=name, namespace=namespace, body=encoded, **more)
        return await component.server.api_for(identity).call(request)

    for name in ("n1", "n2"):
        status = {"nodeInfo": {"kubeletSession": "s1"}}
        made = await call(
            ADMIN, "create", NODES, body={**meta(name=name, labels={"zone-of-admin": "a"}), "status": status}
        )
        await call(ADMIN, "patch", NODES, name, {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
                   patch_type="merge")  # fmt: skip
        call.uid = getattr(call, "uid", "") or msgspec.json.decode(made.body)["metadata"]["uid"]  # type: ignore[attr-defined]
    lease = {**meta(name="kube-scheduler", annotations={"emulation/unbind": "v1"}), "spec": {"holderIdentity": "s"}}
    await call(SCHEDULER, "create", LEASES, body=lease, namespace="kube-system")
    reach = {
        "volumes": [{"name": "v", "secret": {"secretName": "used"}}, {"name": "w", "configMap": {"name": "used"}}],
        "containers": [{"name": "c", "image": "i:1"}],
    }
    for name, node in (("mine", "n1"), ("theirs", "n2"), ("free", "")):
        await call(ADMIN, "create", PODS, body={**meta(name=name), "spec": reach})
        if node:
            bound = await call(SCHEDULER, "create", PODS, name, {"target": {"name": node}}, subresource="binding")
            assert bound.code == 201
    for kind in ("secrets", "configmaps"):
        for name in ("used", "unused"):
            await call(ADMIN, "create", kind, body=meta(name=name))
    try:
        yield component.server, call
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("rule", ROWS)
def test_guarantees_as_33_a_node_tries_what_it_may_not(rule):
    async def scenario() -> None:
        async with a_server() as (_, call):
            before = (await call(ADMIN, "get", "statehash")).body
            answers = {}
            for verb, resource, name, body, more in ROWS[rule]:
                sent = msgspec.json.decode(msgspec.json.encode(body).replace(b"THE-UID-OF-N1", call.uid.encode()))
                answer = await call(N1, verb, resource, name, sent, **more)
                said = msgspec.json.decode(answer.body).get("message") if answer.body else ""
                if (answer.code, said) != (403, NODE_TEXT):
                    answers[f"{verb} {resource}/{name} {more} {body}"] = (answer.code, said)
            assert answers == {}
            after = await call(ADMIN, "get", "statehash")
            assert (after.code, after.body) == (200, before)

    assert len(ROWS[rule]) >= 3
    simloop.run(scenario(), seed=1)


def test_guarantees_as_33_what_is_tried_by_watching_is_refused_alike():
    async def scenario() -> None:
        async with a_server() as (server, _):
            for resource, selector in (
                (PODS, ""), (PODS, "spec.nodeName=n2"), (NODES, ""), (NODES, "metadata.name=n2"), (SLICES, ""), (LEASES, ""), (CLAIMS, ""),
                ("secrets", ""), ("secrets", "metadata.name=unused"), ("configmaps", "metadata.name=absent"),
            ):  # fmt: skip
                namespace = "" if resource in CLUSTER_WIDE else "default"
                wanted = WatchRequest(resource=resource, namespace=namespace, field_selector=selector)
                with pytest.raises(ApiError) as refused:
                    await anext(aiter(server.api_for(N1).watch(wanted)))
                assert refused.value.message == NODE_TEXT

    simloop.run(scenario(), seed=1)


def test_guarantees_as_33_what_is_its_own_a_node_may_do():
    """So that the rows above are refused for what they try, and not for how they are written."""

    async def scenario() -> None:
        async with a_server() as (_, call):
            good = [
                ("get", NODES, "n1", None, {}), ("list", NODES, "", None, {"field_selector": "metadata.name=n1"}),
                ("get", PODS, "mine", None, {}), ("get", "secrets", "used", None, {}),
                ("list", PODS, "", None, {"field_selector": "spec.nodeName=n1"}),
                ("create", PODS, "", mirror(), {}), ("delete", PODS, "m", {"gracePeriodSeconds": 0}, {}),
                ("create", LEASES, "", meta(name="n1"), {"namespace": "kube-node-lease"}),
                ("create", CSINODES, "", {**meta(name="n1"), "spec": {"drivers": []}}, {}),
                ("create", "events", "", {**meta(name="e", namespace="default"), "source": {"host": "n1"},
                 "involvedObject": {"kind": "Pod", "namespace": "default", "name": "mine"}}, {}),
                *own(meta(labels={"zone-of-admin": "a", "kubelet.kubernetes.io/x": "1"})),
                *pod_status(phase="Running"),
                ("create", PODS, "mine", meta(name="mine"), {"subresource": "eviction"}),
            ]  # fmt: skip
            refused = {}
            for verb, resource, name, body, more in good:
                sent = msgspec.json.decode(msgspec.json.encode(body).replace(b"THE-UID-OF-N1", call.uid.encode()))
                answer = await call(N1, verb, resource, name, sent, **more)
                if answer.code >= 300:
                    refused[f"{verb} {resource}/{name} {more}"] = answer.body
            assert refused == {}

    simloop.run(scenario(), seed=1)


def unbinding(pod: Any, **forged: Any) -> Any:
    """What n1's kubelet would send to give the pod back, but for what is forged."""
    uid, generation = forged.pop("uid", pod["metadata"]["uid"]), pod["status"]["bindingGeneration"]
    said = {"nodeName": "n1", "bindingGeneration": generation, "kubeletSession": "s1", "reason": "OutOfcpu", **forged}
    digest = hashlib.sha256(f"{uid}\0{said['bindingGeneration']}\0{said['nodeName']}".encode()).hexdigest()[:32]
    return {"metadata": {"uid": uid}, "requestID": digest, **said}


def test_guarantees_x_nr4_a_node_that_was_deleted_comes_back_without_what_it_may_not_give_itself():
    bad = [
        {"labels": {"node-restriction.kubernetes.io/trusted": "yes"}}, {"labels": {"node-role.kubernetes.io/x": ""}},
        {"finalizers": ["example.com/keep"]}, {"ownerReferences": [A_MAP]},
    ]  # fmt: skip

    async def scenario() -> None:
        async with a_server() as (_, call):
            assert (await call(ADMIN, "delete", NODES, "n1")).code == 200
            before = (await call(ADMIN, "get", "statehash")).body
            for fields in bad:
                answer = await call(N1, "create", NODES, body=meta(name="n1", **fields))
                assert (answer.code, msgspec.json.decode(answer.body)["message"]) == (403, NODE_TEXT), fields
            assert (await call(node_identity("n2"), "create", NODES, body=meta(name="n1"))).code == 403
            assert (await call(ADMIN, "get", "statehash")).body == before
            assert (await call(N1, "create", NODES, body=meta(name="n1", labels={"disk": "ssd"}))).code == 201

    simloop.run(scenario(), seed=1)


def test_guarantees_x_nr17_what_a_node_may_follows_the_bindings_in_the_order_of_commits():
    def tries(name: str) -> list[Row]:
        status = {"status": {"phase": "Running", "observedGeneration": 9}}
        return [
            ("get", PODS, name, None, {}), ("delete", PODS, name, None, {}), ("get", "secrets", "used", None, {}),
            ("patch", PODS, name, status, {"subresource": "status", "patch_type": "merge"}),
            ("create", PODS, name, meta(name=name), {"subresource": "eviction"}),
        ]  # fmt: skip

    async def scenario() -> None:
        async with a_server() as (_, call):
            mine = msgspec.json.decode((await call(N1, "get", PODS, "mine")).body)
            assert (await call(N1, "get", "secrets", "used")).code == 200
            assert (await call(N1, "create", PODS, "mine", unbinding(mine), subresource="unbind")).code == 200
            before = (await call(ADMIN, "get", "statehash")).body
            for verb, resource, name, body, more in tries("mine"):
                answer = await call(N1, verb, resource, name, body, **more)
                assert (answer.code, msgspec.json.decode(answer.body)["message"]) == (403, NODE_TEXT), (verb, more)
            assert (await call(ADMIN, "get", "statehash")).body == before
            target = {"target": {"name": "n1"}}
            assert (await call(SCHEDULER, "create", PODS, "mine", target, subresource="binding")).code == 201
            assert (await call(N1, "get", PODS, "mine")).code == 200
            assert (await call(N1, "get", "secrets", "used")).code == 200

    simloop.run(scenario(), seed=1)


def test_guarantees_as_28_no_node_gives_away_a_pod_that_is_not_its_own():
    """500 attempts: another node's kubelet, with forged fields and absent names, and every caller that is no kubelet."""
    others = [SCHEDULER, ADMIN, ANONYMOUS, Identity("user:default"), controller_identity("job")]
    forgeries = [
        {}, {"nodeName": "n2"}, {"bindingGeneration": 1}, {"bindingGeneration": 99}, {"kubeletSession": "s2"},
        {"requestID": "0" * 32}, {"uid": "00000000-0000-4000-8000-000000000000"}, {"reason": "NodeShutdown"},
    ]  # fmt: skip

    async def scenario() -> None:
        async with a_server() as (_, call):
            mine = msgspec.json.decode((await call(N1, "get", PODS, "mine")).body)
            before = (await call(ADMIN, "get", "statehash")).body
            seen: dict[str, set[tuple[int, bytes]]] = {}
            tries = 0
            for who in (node_identity("n2"), *others):
                for name, forged in itertools.product(("mine", "free", "absent"), forgeries):
                    for _ in range(4):
                        body = unbinding(mine, **forged)
                        answer = await call(who, "create", PODS, name, body, subresource="unbind")
                        seen.setdefault(who.user, set()).add((answer.code, answer.body))
                        tries += 1
            assert tries >= 500
            assert {code for answers in seen.values() for code, _ in answers} <= {401, 403, 422}
            assert len({answer for answer in seen["system:node:n2"] if answer[0] == 403}) == 1
            assert (await call(ADMIN, "get", "statehash")).body == before
            given = await call(N1, "create", PODS, "mine", unbinding(mine), subresource="unbind")
            assert given.code == 200  # its own node may

    simloop.run(scenario(), seed=1)
