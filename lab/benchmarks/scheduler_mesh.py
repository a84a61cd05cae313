"""A workload run on a real API server and a real scheduler, each a process, over gRPC.

As in upstream's scheduler_perf, nodes have no kubelets and there are no controllers: a bound pod stays as
it is. This process generates the load and watches the pods.
"""

import asyncio
import itertools
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from lab.benchmarks.algorithm import Progress, TooSlow, where_the_time_goes
from lab.benchmarks.mesh import PodState
from lab.benchmarks.result import SchedulerBench, milliseconds
from lab.benchmarks.running_mesh import LIMIT_S, LOAD, Meter, follow, many, quiet_arguments, running_mesh
from lab.benchmarks.units import Calibrator
from lab.benchmarks.workloads import documents, ops
from lab.benchmarks.workloads.documents import NewObject
from lab.benchmarks.workloads.ops import Size, Workload
from services.api.errors import AlreadyExists, NotFound
from services.api.meta import Document, Key
from services.api.switches import Switches
from services.api.wire import Api, Request, WatchEvent
from services.client.client import request_of

UNIT_EVERY_S: Final = 0.1
SETTLE_S: Final = 1.0
"""Pause between preparation and measurement in seconds, so that late work of the preparation is not measured."""


@dataclass
class Load:
    """Load generator: performs a workload's steps on an API server, and watches pods. `group`: its background tasks."""

    api: Api
    size: Size
    group: asyncio.TaskGroup
    progress: Progress
    _pods_by_namespace: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    created_s: dict[str, float] = field(default_factory=dict)
    bound_s: dict[str, float] = field(default_factory=dict)
    """Time at which the watcher saw each pod bound, by pod name; names are unique in a workload."""

    def __post_init__(self) -> None:
        self._decode = msgspec.json.Decoder(PodState).decode
        self.meanwhile = [self.group.create_task(follow(self.api, "pods", self._note, self._changed.set))]

    def _note(self, event: WatchEvent, now: float) -> None:
        bound = self.bound_s
        if event.type == "MODIFIED" and event.name not in bound and self._decode(event.body).spec.node_name:
            bound[event.name] = now

    async def do(self, step: int, op: Any) -> None:
        """Perform one step; return when its pods have nodes."""
        match op:
            case ops.CreateNodes():
                await self._create_all("nodes", documents.nodes_of(op, self.size))
                drivers = [(each["metadata"]["name"], each) for each in documents.csi_nodes_of(op, self.size)]
                bodies = (NewObject("", name, msgspec.json.encode(each)) for name, each in drivers)
                await self._create_all("csinodes.storage.k8s.io", bodies)
            case ops.CreateDevices():
                await many(list(documents.devices_of(op, self.size)), self._create_of_dra)
            case ops.CreateNamespaces():
                for number in range(self.size.count(op.count)):
                    await self._namespace(f"{op.prefix}-{number}", dict(op.labels))
            case ops.CreateObject():
                await self._namespace(op.namespace, {})
                await self._create(op.plural, NewObject(op.namespace, "", msgspec.json.encode(op.document)))
            case ops.CreatePods():
                await self._pods(step, op)
            case ops.DeferResizes():
                await self._defer_resizes(step, op)
            case ops.Churn():
                self.meanwhile.append(self.group.create_task(self._churn(op)))
            case ops.DeletePods():
                self.meanwhile.append(self.group.create_task(self._delete(op)))

    async def prepare_priorities(self, workload: Workload) -> None:
        """Create a PriorityClass for each priority that the workload's pods have."""
        for value in documents.priorities_of(workload):
            name = documents.PRIORITY_CLASS.format(value)
            head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
            document = {**head, "value": value}
            await self._create("priorityclasses.scheduling.k8s.io", NewObject("", name, msgspec.json.encode(document)))

    async def _pods(self, step: int, op: ops.CreatePods) -> None:
        pods = list(documents.pods_of(op, step, self.size))
        for namespace in dict.fromkeys(pod.namespace for pod in pods):
            await self._namespace(namespace, {})
        self._pods_by_namespace.setdefault(op.namespace, []).extend((pod.namespace, pod.name) for pod in pods)
        if op.volume:
            await self._volumes(op, pods)
        claims = [("resourceclaims", each) for each in documents.claims_of(op, step, self.size)]
        await many(claims, self._create_of_dra)
        if op.is_measured:
            await asyncio.sleep(SETTLE_S)
        waiting = asyncio.create_task(self._wait(pods, "measuring" if op.is_measured else "preparing"))
        try:
            await self._create_all("pods", pods, op.per_s)
            if op.may_wait:
                waiting.cancel()
            else:
                await waiting
        finally:
            waiting.cancel()

    async def _wait(self, pods: list[NewObject], what: str) -> None:
        bound, names, done = self.bound_s, iter([pod.name for pod in pods]), 0
        name = next(names, None)
        try:
            async with asyncio.timeout(LIMIT_S):
                while name is not None:
                    if name in bound:
                        name, done = next(names, None), done + 1
                        continue
                    self.progress(what, done, len(pods))
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise TooSlow(f"{done} of {len(pods)} pods have a node after {LIMIT_S:g} s") from None
        self.progress(what, done, len(pods))

    async def _volumes(self, op: ops.CreatePods, pods: list[NewObject]) -> None:
        volumes = [pair for pod in pods for pair in documents.volumes_of(op.volume, pod.namespace, pod.name)]

        async def create(pair: tuple[str, Document]) -> None:
            plural, document = pair
            meta = document["metadata"]
            namespace, name = meta.get("namespace", ""), meta["name"]
            await self._create(plural, NewObject(namespace, name, msgspec.json.encode(document)))
            await self._patch_status(plural, namespace, name, {"status": document["status"]}, "merge")

        await many(volumes, create)

    async def _create_of_dra(self, pair: tuple[str, Document]) -> None:
        plural, document = pair
        meta = document["metadata"]
        made = NewObject(meta.get("namespace", ""), meta["name"], msgspec.json.encode(document))
        await self._create(f"{plural}.resource.k8s.io", made)

    async def _defer_resizes(self, step: int, op: ops.DeferResizes) -> None:
        await self._namespace(op.namespace, {})

        async def create(pair: tuple[NewObject, Document]) -> None:
            pod, status = pair
            await self._create("pods", pod)
            await self._patch_status("pods", pod.namespace, pod.name, status, "strategic")

        await many(documents.deferred_of(op, step, self.size), create)

    async def _create_all(self, plural: str, objects: Iterable[NewObject], per_s: float = 0.0) -> None:
        began, numbers = time.perf_counter(), itertools.count()

        async def create(each: NewObject) -> None:
            if per_s:
                await asyncio.sleep(max(0.0, began + next(numbers) / per_s - time.perf_counter()))
            self.created_s[each.name] = time.perf_counter()
            await self._create(plural, each)

        await many(objects, create)

    async def _create(self, plural: str, each: NewObject) -> None:
        request = Request(verb="create", resource=plural, namespace=each.namespace, body=each.body)
        (await self.api.call(request)).unwrap()

    async def _patch_status(self, plural: str, namespace: str, name: str, patch: Document, patch_type: str) -> None:
        key, body = Key(namespace, name), msgspec.json.encode(patch)
        request = request_of("patch", plural, key, body, subresource="status", patch_type=patch_type)
        (await self.api.call(request)).unwrap()

    async def _namespace(self, name: str, labels: dict[str, str]) -> None:
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        try:
            await self._create("namespaces", NewObject("", name, msgspec.json.encode(document)))
        except AlreadyExists:
            return

    async def _churn(self, op: ops.Churn) -> None:
        last: list[Request] = []
        for number in itertools.count():
            for request in last if op.recreate else ():
                await self.api.call(request)
            last.clear()
            for plural, template in op.templates:
                name = f"churn-{number}"
                namespace = "" if plural == "nodes" else "default"
                body = msgspec.json.encode(documents.as_sent(documents.with_name(template, name)))
                await self._create(plural, NewObject(namespace, name, body))
                last.append(Request(verb="delete", resource=plural, namespace=namespace, name=name))
            await asyncio.sleep(op.interval_s)

    async def _delete(self, op: ops.DeletePods) -> None:
        began = time.perf_counter()
        for number, (namespace, name) in enumerate(list(self._pods_by_namespace[op.of])):
            await asyncio.sleep(max(0.0, began + number / op.per_s - time.perf_counter()))
            answer = await self.api.call(Request(verb="delete", resource="pods", namespace=namespace, name=name))
            try:
                answer.unwrap()
            except NotFound:
                continue


async def _sample(units: Calibrator) -> None:
    """Measure units all the time; the load generator's process has more to do than that."""
    while True:
        units.measure()
        await asyncio.sleep(UNIT_EVERY_S)


async def _play(assignments: tuple[str, ...], workload: Workload, size: Size, progress: Progress) -> SchedulerBench:
    without = frozenset(("controllers", "claim-controller"))
    async with running_mesh(
        engine="memory", switches=assignments, without=without, arguments=quiet_arguments()
    ) as mesh:
        units = Calibrator()
        async with asyncio.TaskGroup() as group:
            load = Load(mesh.api, size, group, progress)
            sampling = group.create_task(_sample(units))
            await load.prepare_priorities(workload)
            meter: Meter | None = None
            for step, op in enumerate(workload.ops):
                if isinstance(op, ops.CreatePods) and op.is_measured:
                    meter = mesh.meter(with_load=True)
                    measured = [pod.name for pod in documents.pods_of(op, step, size)]
                    claims = sum(1 for _ in documents.claims_of(op, step, size))
                await load.do(step, op)
            assert meter is not None, f"{workload.name} measures nothing"
            used = meter.spent_s()
            for task in (sampling, *load.meanwhile):
                task.cancel()
        created, bound = load.created_s, load.bound_s
        took_s = max(bound[name] for name in measured) - min(created[name] for name in measured)
        waits = [bound[name] - created[name] for name in measured]
        us_per_pod = {name: 1e6 * spent / size.pods for name, spent in used.items()}
        cpu_us = sum(spent for name, spent in us_per_pod.items() if name != LOAD)
        return SchedulerBench(
            workload=workload.name,
            form="mesh",
            nodes=size.nodes,
            pods=size.pods,
            init_pods=size.init_pods,
            switches=assignments,
            pods_per_s=round(size.pods / took_s, 1),
            cpu_us_per_pod=round(cpu_us, 1),
            p50_ms=milliseconds(waits, 0.5),
            p99_ms=milliseconds(waits, 0.99),
            rss_mib=mesh.rss_mib(),
            claims=claims,
            cpu_us_per_pod_by_process={name: round(spent, 1) for name, spent in us_per_pod.items()},
            units_per_pod=round(units.units(1e-6 * cpu_us), 3),
            unit_us=round(1e6 * units.unit_s, 1),
        )


def bench_scheduler_mesh(
    workload: Workload,
    size: Size,
    *,
    assignments: tuple[str, ...] = (),
    progress: Progress = lambda what, done, total: None,
) -> SchedulerBench:
    """Start API server and scheduler, run the workload, and return its figures.

    The breakdown by plugin comes from a short run of the same size on the core alone. Raises: TooSlow.
    """
    try:
        result = asyncio.run(_play(assignments, workload, size, progress))
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
    return replace(result, **where_the_time_goes(workload, size, Switches.parse(assignments), progress))
