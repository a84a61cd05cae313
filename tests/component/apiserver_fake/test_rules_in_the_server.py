"""Bind, unbind, evict and status through the real server: the rules and the registry fit together."""

from __future__ import annotations

import asyncio
import hashlib
import random
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.wiring import build
from lab.scenarios.simulation import simloop
from services.api.identity import ADMIN, SCHEDULER, Identity, controller_identity, node_identity
from services.api.seams import Seams
from services.api.switches import Switches
from services.api.wire import Request, WatchRequest
from services.runtime.real import MemoryDisk, NoTransport
from services.telemetry.eventlog import MemoryEventLog, MemoryEvents
from services.telemetry.traces import MemorySpans, Tracer

N1, N2 = node_identity("n1"), node_identity("n2")
POD = {"metadata": {"name": "p", "labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}


class LoopClock:
    """Virtual time."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return 1_800_000_000 + self.now()


class Caller:
    """Calls the server as anybody."""

    def __init__(self, server: Any) -> None:
        self.server = server

    async def try_call(
        self, identity: Identity, verb: str, resource: str, name: str = "", body: Any = None, **more: Any
    ) -> Any:
        namespace = more.pop("namespace", "" if resource in ("nodes", "namespaces") else "default")
        request = Request(
            verb=verb,
            resource=resource,
            name=name,
            namespace=namespace,
            body=b"" if body is None else msgspec.json.encode(body),
            **more,
        )
        return await self.server.api_for(identity).call(request)

    async def __call__(self, *args: Any, **more: Any) -> Any:
        return msgspec.json.decode((await self.try_call(*args, **more)).unwrap().body)


@asynccontextmanager
async def a_mesh() -> Any:
    """A server with two registered nodes and a scheduler that can take pods back."""
    clock, rng = LoopClock(), random.Random(3)
    seams = Seams(
        component="apiserver", clock=clock, random=rng, disk=MemoryDisk(), transport=NoTransport(),
        events=MemoryEventLog("apiserver", clock, "1", MemoryEvents()),
        tracer=Tracer("apiserver", clock=clock, random=rng, sinks=(MemorySpans(),)), switches=Switches(),
    )  # fmt: skip
    component = build(ApiServerConfig(engine="memory", grpc_port=None, rest_port=None), seams)
    task = asyncio.create_task(component.run())
    await component.server.wait_until_ready()
    call = Caller(component.server)
    for node in (N1, N2):
        status = {"nodeInfo": {"kubeletSession": "s1"}, "capacity": {"cpu": 4}}
        await call(node, "create", "nodes", body={"metadata": {"name": node.node}, "status": status})
    lease = {
        "metadata": {"name": "kube-scheduler", "annotations": {"emulation/unbind": "v1"}},
        "spec": {"holderIdentity": "s"},
    }
    await call(SCHEDULER, "create", "leases.coordination.k8s.io", body=lease, namespace="kube-system")
    try:
        yield call
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def unbinding(pod: Any) -> Any:
    uid, generation = pod["metadata"]["uid"], pod["status"]["bindingGeneration"]
    return {
        "metadata": {"uid": uid}, "nodeName": "n1", "bindingGeneration": generation, "kubeletSession": "s1",
        "requestID": hashlib.sha256(f"{uid}\0{generation}\0n1".encode()).hexdigest()[:32], "reason": "OutOfcpu",
    }  # fmt: skip


def test_kubelet_unbinding_2_a_pod_is_bound_unbound_and_bound_elsewhere_as_one_object():
    async def scenario() -> None:
        async with a_mesh() as call:
            made = await call(ADMIN, "create", "pods", body=POD)
            answer = await call.try_call(
                SCHEDULER, "create", "pods", "p", {"target": {"name": "n1"}}, subresource="binding"
            )
            assert answer.code == 201
            bound = await call(N1, "get", "pods", "p")
            events = []

            async def watch() -> None:
                wanted = WatchRequest(
                    resource="pods",
                    field_selector="spec.nodeName=n1",
                    resource_version=bound["metadata"]["resourceVersion"],
                )
                async for batch in call.server.api_for(N1).watch(wanted):
                    events.extend(event.type for event in batch if event.type != "BOOKMARK")

            watcher = asyncio.create_task(watch())
            await asyncio.sleep(0.1)
            after = await call(N1, "create", "pods", "p", unbinding(bound), subresource="unbind")
            assert (after["metadata"]["uid"], after["status"]["unbindCount"]) == (made["metadata"]["uid"], 1)
            again = await call(N1, "create", "pods", "p", unbinding(bound), subresource="unbind")
            assert sorted(again["metadata"]) == ["name", "namespace", "resourceVersion", "uid"]
            lost = await call.try_call(N1, "get", "pods", "p")
            never_was = await call.try_call(N1, "get", "pods", "q")
            assert (lost.code, lost.body) == (403, never_was.body)
            await asyncio.sleep(0.1)
            assert events == ["DELETED"]
            watcher.cancel()
            rebinding = {
                "metadata": {"uid": made["metadata"]["uid"]},
                "target": {"name": "n2"},
                "expectedUnbindCount": 1,
            }
            await call(SCHEDULER, "create", "pods", "p", rebinding, subresource="binding")
            running = {"status": {"phase": "Running", "observedGeneration": 4}}
            seen = await call(N2, "patch", "pods", "p", running, subresource="status", patch_type="strategic")
            assert (seen["status"]["phase"], seen["spec"]["nodeName"]) == ("Running", "n2")

    simloop.run(scenario())


def test_an_eviction_spends_the_budget_in_the_same_commit_and_kubelet_confirms_the_end():
    async def scenario() -> None:
        async with a_mesh() as call:
            await call(ADMIN, "create", "pods", body=POD)
            await call(SCHEDULER, "create", "pods", "p", {"target": {"name": "n1"}}, subresource="binding")
            ready = {
                "status": {
                    "phase": "Running",
                    "observedGeneration": 2,
                    "conditions": [{"type": "Ready", "status": "True"}],
                }
            }
            await call(N1, "patch", "pods", "p", ready, subresource="status", patch_type="merge")
            budget = {
                "metadata": {"name": "b"},
                "spec": {"minAvailable": 0, "selector": {"matchLabels": {"app": "web"}}},
            }
            await call(ADMIN, "create", "poddisruptionbudgets.policy", body=budget)
            counted = {
                "status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 0}
            }
            who = controller_identity("disruption")
            await call(
                who, "patch", "poddisruptionbudgets.policy", "b", counted, subresource="status", patch_type="merge"
            )
            answer = await call.try_call(
                ADMIN, "create", "pods", "p", {"metadata": {"name": "p"}}, subresource="eviction"
            )
            assert answer.code == 201
            spent = await call(ADMIN, "get", "poddisruptionbudgets.policy", "b")
            assert (spent["status"]["disruptionsAllowed"], list(spent["status"]["disruptedPods"])) == (0, ["p"])
            ending = await call(N1, "get", "pods", "p")
            assert ending["metadata"]["deletionGracePeriodSeconds"] == 30
            assert int(ending["metadata"]["resourceVersion"]) == int(spent["metadata"]["resourceVersion"]) + 1
            await call(N1, "delete", "pods", "p", {"gracePeriodSeconds": 0})
            assert (await call.try_call(ADMIN, "get", "pods", "p")).code == 404

    simloop.run(scenario())


def test_a_namespace_ends_when_it_is_finalized_and_scale_answers_with_the_new_version():
    async def scenario() -> None:
        async with a_mesh() as call:
            template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
            workload = {
                "metadata": {"name": "web"},
                "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template},
            }
            made = await call(ADMIN, "create", "deployments.apps", body=workload)
            scaled = await call(
                ADMIN,
                "patch",
                "deployments.apps",
                "web",
                {"spec": {"replicas": 4}},
                subresource="scale",
                patch_type="merge",
            )
            assert (scaled["kind"], scaled["spec"]) == ("Scale", {"replicas": 4})
            assert int(scaled["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
            assert (await call(ADMIN, "get", "deployments.apps", "web"))["metadata"]["generation"] == 2
            await call(ADMIN, "create", "namespaces", body={"metadata": {"name": "team"}})
            assert (await call(ADMIN, "delete", "namespaces", "team"))["status"]["phase"] == "Terminating"
            refused = await call.try_call(ADMIN, "create", "pods", body=POD, namespace="team")
            assert refused.code == 403
            team = await call(ADMIN, "get", "namespaces", "team")
            await call(
                controller_identity("namespace"),
                "update",
                "namespaces",
                "team",
                {**team, "spec": {}},
                subresource="finalize",
            )
            assert (await call.try_call(ADMIN, "get", "namespaces", "team")).code == 404

    simloop.run(scenario())


def test_guarantees_v6_unknown_fields_are_left_out_with_a_warning_and_strict_refuses_them():
    async def scenario() -> None:
        async with a_mesh() as call:
            odd = {**POD, "spec": {**POD["spec"], "replica": 3}, "dataa": {"x": None}}
            refused = await call.try_call(ADMIN, "create", "pods", body=odd, field_validation="Strict")
            assert refused.code == 400
            assert b'strict decoding error: unknown field \\"spec.replica\\", unknown field \\"dataa\\"' in refused.body
            warned = await call.try_call(ADMIN, "create", "pods", body=odd, field_validation="Warn")
            assert warned.warnings == ('unknown field "spec.replica"', 'unknown field "dataa"')
            made = msgspec.json.decode(warned.body)
            assert "dataa" not in made
            assert "replica" not in made["spec"]
            patch = {"spec": {"bogus": 1}}
            same = await call.try_call(ADMIN, "patch", "pods", "p", patch, patch_type="merge", field_validation="Warn")
            assert (same.code, same.warnings, same.rv) == (200, ('unknown field "spec.bogus"',), warned.rv)
            strict = await call.try_call(
                ADMIN, "patch", "pods", "p", patch, patch_type="merge", field_validation="Strict"
            )
            assert strict.code == 422
            assert b'strict decoding error: unknown field \\"spec.bogus\\"' in strict.body
            silent = await call.try_call(ADMIN, "patch", "pods", "p", patch, patch_type="merge")
            assert (silent.code, silent.warnings) == (200, ())

    simloop.run(scenario())


def test_a_key_that_is_there_twice_has_its_last_value_and_strict_refuses_it():
    async def scenario() -> None:
        async with a_mesh() as call:
            text = b'{"metadata":{"name":"twice"},"data":{"a":"1","a":"2"},"other":1}'

            async def create(validation: str) -> Any:
                request = Request(
                    verb="create", resource="configmaps", namespace="default", body=text, field_validation=validation
                )
                return await call.server.api_for(ADMIN).call(request)

            assert (await create("")).code == 400
            refused = await create("Strict")
            assert refused.code == 400
            assert b'strict decoding error: duplicate field \\"data.a\\", unknown field \\"other\\"' in refused.body
            made = await create("Warn")
            assert made.warnings == ('duplicate field "data.a"', 'unknown field "other"')
            assert msgspec.json.decode(made.body)["data"] == {"a": "2"}

    simloop.run(scenario())


def test_a_status_of_a_pod_may_bring_labels_and_annotations_but_no_owner() -> None:
    async def scenario() -> None:
        async with a_mesh() as call:
            await call(ADMIN, "create", "pods", body=POD)
            owner = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"}
            meta = {"labels": {"app": None, "a": "b"}, "annotations": {"n": "1"}, "ownerReferences": [owner]}
            body = {"metadata": meta, "spec": {"hostname": "h"}, "status": {"message": "m"}}
            seen = await call(ADMIN, "patch", "pods", "p", body, subresource="status", patch_type="merge")
            assert (seen["metadata"]["labels"], seen["metadata"]["annotations"]) == ({"a": "b"}, {"n": "1"})
            assert "ownerReferences" not in seen["metadata"]
            assert "hostname" not in seen["spec"]
            assert seen["status"]["message"] == "m"

    simloop.run(scenario())


@pytest.mark.parametrize("how", ["update", "json", "merge", "strategic"])
def test_kubelet_unbinding_4_5_a_client_that_knows_no_sessions_leaves_the_nodes_as_it_is(how: str) -> None:
    async def scenario() -> None:
        async with a_mesh() as call:
            node = await call(ADMIN, "get", "nodes", "n1")
            info = {"kubeletVersion": "v1.36.0"}
            body: Any = {"status": {"nodeInfo": {**info, "kubeletSession": None}}}
            if how == "update":
                body = {**node, "status": {**node["status"], "nodeInfo": info}}
            elif how == "json":
                body = [{"op": "replace", "path": "/status/nodeInfo", "value": info}]
            more = {} if how == "update" else {"patch_type": how}
            verb = "patch" if more else "update"
            written = await call(ADMIN, verb, "nodes", "n1", body=body, subresource="status", **more)
            assert written["status"]["nodeInfo"] == {**info, "kubeletSession": "s1"}

    simloop.run(scenario())
