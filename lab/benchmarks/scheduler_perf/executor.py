"""Executor of a workload's operations, one after the other.

Source: kubernetes/kubernetes `test/integration/scheduler_perf/executor.go`.
"""

from __future__ import annotations

import copy
import fnmatch
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from lab.benchmarks.scheduler_perf import opcodes as ops
from lab.benchmarks.scheduler_perf.cases import Step, Workload
from lab.benchmarks.scheduler_perf.claim_allocation import NoDevices, allocations
from lab.benchmarks.scheduler_perf.cluster import FOREGROUND_LIMIT_S, Cluster, Failed, kind_of
from lab.benchmarks.scheduler_perf.collectors import Collection
from lab.benchmarks.scheduler_perf.data_items import Comparison, DataItem, compare
from lab.benchmarks.scheduler_perf.object_templates import ObjectTemplate, template_at
from lab.benchmarks.scheduler_perf.opcodes import Op
from lab.benchmarks.scheduler_perf.spelling import UnknownField, correct_field_names
from lab.benchmarks.workloads import templates
from lab.benchmarks.workloads.documents import CREATED
from services.api.meta import Document, Key

CHURN_INTERVAL_S: Final = 0.5
GROUPS_LIMIT_S: Final = 10.0
STABLE_S: Final = 5.0
BINDING_CONDITIONS: Final = "DRADeviceBindingConditions"
DRA_VERSION: Final = "resource.k8s.io/v1"
CLAIMS: Final = "resourceclaims.resource.k8s.io"
POD_GROUPS: Final = "podgroups.scheduling.k8s.io"
Fill = Callable[[int], Document]
Progress = Callable[[str, int, int], None]


class Measured(msgspec.Struct):
    """Figures of one collection. `seconds`: from its beginning to the last pod that got a node; `pods_per_s` is
    over that time.
    """

    name: str
    pods: int
    seconds: float
    pods_per_s: float
    has_samples: bool


class Executor:
    """Executor of one workload on one cluster. `items`, `comparisons` and `measured` grow as collections end."""

    def __init__(self, cluster: Cluster, workload: Workload, topic: str, progress: Progress) -> None:
        self._cluster, self._workload, self._topic, self._progress = cluster, workload, topic, progress
        self.items: list[DataItem] = []
        self.comparisons: list[Comparison] = []
        self.measured: list[Measured] = []
        self.remarks: list[str] = []
        self._collection: Collection | None = None
        self._unawaited: dict[str, int] = {}
        """How many pods of each namespace were created without waiting for them; a namespace that exists has one."""
        self._nodes = 0
        self._volumes: dict[str, int] = {}
        """How many volumes the pods of each namespace brought."""

    async def run(self, steps: list[Step]) -> None:
        """Perform the steps. Raises: Failed naming the operation, Unsupported."""
        for step in steps:
            try:
                await self._perform(step.number, step.op)
            except Failed as error:
                raise Failed(f"op {step.number} {step.op.opcode}: {error}") from None
        if self._collection is not None:
            await self._stop_collecting()
            raise Failed("startCollectingMetrics without stopCollectingMetrics")

    def _fill(self, path: str | None, count: int, values: Mapping[str, Any], base: Document) -> Fill:
        """Return what fills a template for an index; without a path it is the base."""
        if path is None:
            return lambda _index: copy.deepcopy(base)
        found = self._template(path)
        return lambda index: found.fill({**values, "Index": index, "Count": count})

    def _fill_typed(self, path: str | None, count: int, values: Mapping[str, Any], base: Document) -> Fill:
        """Return what fills a template that upstream reads into the type of its kind: names of fields in any case, and
        a field that the kind does not have is refused. Of `createAny` and the like it is the API server that looks."""
        fill = self._fill(path, count, values, base)

        def typed_fill(index: int) -> Document:
            try:
                return correct_field_names(fill(index))
            except UnknownField as error:
                raise Failed(f"{path}: {error}") from None

        return typed_fill

    def _template(self, path: str) -> ObjectTemplate:
        return template_at(str(self._workload.file.relative(path)))

    async def _perform(self, number: int, op: Op) -> None:
        match op:
            case ops.CreateNodes():
                await self._create_nodes(number, op)
            case ops.CreateNamespaces():
                await self._create_namespaces(op)
            case ops.CreatePods():
                await self._create_pods(number, op)
            case ops.CreatePodGroups():
                await self._create_pod_groups(op)
            case ops.WaitForPodGroups():
                await self._wait_for_groups(op.namespace, op.count)
            case ops.UpdateAny():
                await self._update_any(op)
            case ops.CreateAny():
                await self._create_any(op)
            case ops.CreateResourceClaims():
                await self._ensure_namespace(op.namespace)
                fill = self._fill_typed(op.template_path, op.count, {}, {})
                await self._cluster.create_all(op.count, fill, lambda _: op.namespace)
            case ops.CreateResourceDriver():
                await self._create_driver(op)
            case ops.AllocResourceClaims():
                await self._allocate_claims(op)
            case ops.UpdateDeviceConditions():
                await self._update_conditions(op)
            case ops.CheckPodScheduled():
                await self._check_scheduled(op)
            case ops.Churn():
                await self._churn(number, op)
            case ops.DeletePods():
                await self._delete_pods(op)
            case ops.Barrier():
                await self._barrier(op)
            case ops.Sleep():
                await self._cluster.sleep(ops.seconds(op.duration) if op.duration else 0.0)
            case ops.StartCollectingMetrics():
                await self._start_collecting(op.name, op.namespaces, op.label_selector, op.collectors)
            case ops.StopCollectingMetrics():
                await self._stop_collecting()
            case ops.Profile():
                self.remarks.append(f"op {number} {op.opcode}: there are no Go profiles of a Python process")

    # --- nodes, namespaces, objects ---

    async def _create_nodes(self, number: int, op: ops.CreateNodes) -> None:
        base = {**copy.deepcopy(templates.NODE), "metadata": {"generateName": f"node-{number}-"}}
        fill = self._fill_typed(op.node_template_path, op.count, op.template_params, base)
        label, unique = op.label_node_prepare_strategy, op.unique_node_label_strategy
        extra = op.node_allocatable_strategy
        begun = self._nodes

        def node(index: int) -> Document:
            document = fill(index)
            metadata = document["metadata"]
            if not metadata.get("name"):
                metadata["name"] = f"{metadata.pop('generateName', '')}{begun + index:05d}"
            own = {templates.HOSTNAME: metadata["name"]}
            labels = metadata["labels"] = {**templates.OF_KUBELET, **(metadata.get("labels") or {}), **own}
            if label is not None:
                labels[label.label_key] = label.label_values[index % len(label.label_values)]
            elif unique is not None:
                labels[unique.label_key] = f"{unique.label_key.rpartition('/')[2]}-{begun + index}"
            elif extra is not None:
                status = document.setdefault("status", {})
                for part in ("capacity", "allocatable"):
                    # What a node does not say it can allocate is its capacity.
                    status[part] = {**(status.get(part) or status.get("capacity") or {}), **extra.node_allocatable}
            return document

        names = await self._cluster.create_all(op.count, node, lambda _: "")
        self._nodes += op.count
        if extra is None or not extra.csi_node_allocatable:
            return
        annotation = {"storage.alpha.kubernetes.io/migrated-plugins": ",".join(extra.migrated_plugins)}
        drivers = [
            {"name": name, "nodeID": name, "allocatable": {"count": (each or {}).get("count")}}
            for name, each in extra.csi_node_allocatable.items()
        ]

        def csi_node(index: int) -> Document:
            metadata = {"name": names[index], **({"annotations": annotation} if extra.migrated_plugins else {})}
            return {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "CSINode",
                "metadata": metadata,
                "spec": {"drivers": drivers},
            }

        await self._cluster.create_all(len(names), csi_node, lambda _: "")

    async def _ensure_namespace(self, name: str) -> None:
        if name not in self._unawaited:
            document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await self._cluster.create(document, "")
            self._unawaited[name] = 0

    async def _create_namespaces(self, op: ops.CreateNamespaces) -> None:
        fill = self._fill_typed(op.namespace_template_path, op.count, {}, {"apiVersion": "v1", "kind": "Namespace"})
        for number in range(op.count):
            name = f"{op.prefix}-{number}"
            if name in self._unawaited:
                continue
            namespace = fill(number)
            namespace["metadata"] = {**namespace.get("metadata", {}), "name": name}
            namespace["metadata"].pop("generateName", None)
            await self._cluster.create(namespace, "")
            self._unawaited[name] = 0

    async def _create_any(self, op: ops.CreateAny) -> None:
        if op.namespace:
            await self._ensure_namespace(op.namespace)
        count = 1 if op.count is None else op.count
        fill = self._fill(op.template_path, count, op.template_params, {})
        for index in range(count):
            await self._cluster.create(fill(index), op.namespace, is_strict=True)
            self._progress("creating", index + 1, count)

    async def _update_any(self, op: ops.UpdateAny) -> None:
        if op.namespace:
            await self._ensure_namespace(op.namespace)
        count = 1 if op.count is None else op.count
        fill = self._fill(op.template_path, count, op.template_params, {})
        subresource = op.subresources[0] if op.subresources else ""
        began = self._cluster.now()
        for index in range(count):
            if op.update_per_second:
                await self._cluster.sleep(max(0.0, began + (index + 1) / op.update_per_second - self._cluster.now()))
            document = fill(index)
            await self._cluster.update(document, op.namespace, subresource)
            if document.get("status") and subresource != "status":
                await self._cluster.update(document, op.namespace, "status")
            self._progress("updating", index + 1, count)

    # --- pods ---

    async def _create_pods(self, number: int, op: ops.CreatePods) -> None:
        namespace = f"namespace-{number}" if op.namespace is None else op.namespace
        await self._ensure_namespace(namespace)
        if op.collect_metrics:
            await self._start_collecting(namespace, [namespace], {})
        if op.steady_state:
            await self._steadily(namespace, op)
        else:
            await self._rapidly(namespace, op, op.count)
            if op.skip_wait_to_completion:
                self._unawaited[namespace] += op.count
            else:
                await self._wait(namespace, {}, op.count, "Scheduled")
        if op.collect_metrics:
            await self._stop_collecting()

    def _pod_fill(self, op: ops.CreatePods, count: int) -> Fill:
        path = op.pod_template_path or self._workload.default_pod_template
        base = copy.deepcopy(templates.DEFAULT)
        fill = self._fill_typed(path, count, op.template_params, base)
        if path is None:
            return fill

        def pod(index: int) -> Document:
            made = fill(index)
            labels = made["metadata"].get("labels") or {}
            # Pods of one batch share a label, so that the scheduler's signatures keep batches apart.
            made["metadata"]["labels"] = {**labels, "signature": f"signature-label-{index // op.signature_batch_size}"}
            return made

        return pod

    async def _rapidly(self, namespace: str, op: ops.CreatePods, count: int) -> None:
        fill = self._pod_fill(op, count)
        if op.persistent_volume_claim_template_path is not None:
            fill = await self._with_volumes(namespace, op, count, fill)
        await self._cluster.create_all(count, fill, lambda _: namespace)

    async def _with_volumes(self, namespace: str, op: ops.CreatePods, count: int, pod: Fill) -> Fill:
        """Create for each pod a volume and a claim, bound to each other; return the pods that use them."""
        assert op.persistent_volume_template_path is not None
        volume_of = self._fill_typed(op.persistent_volume_template_path, count, {}, {})
        claim_of = self._fill_typed(op.persistent_volume_claim_template_path, count, {}, {})
        begun = self._volumes.get(namespace, 0)
        self._volumes[namespace] = begun + count
        numbers = range(begun, begun + count)
        for index, number in enumerate(numbers):
            volume, claim = volume_of(index), claim_of(index)
            handle, claim_name = f"vol-{number}", f"pvc-{number}"
            volume_name = f"{namespace}-{handle}"  # unlike claims, volumes lie in no namespace
            _name(volume, volume_name, {"pv.kubernetes.io/bound-by-controller": "true"})
            _name(claim, claim_name, {"pv.kubernetes.io/bind-completed": "true"})
            spec = volume.setdefault("spec", {})
            if "csi" in spec:
                spec["csi"]["volumeHandle"] = handle
            elif "awsElasticBlockStore" in spec:
                spec["awsElasticBlockStore"]["volumeID"] = handle
            reference = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": namespace,
                "name": claim_name,
            }
            spec["claimRef"] = reference
            claim.setdefault("spec", {})["volumeName"] = volume_name
            capacity, modes = spec.get("capacity", {}), claim["spec"].get("accessModes", [])
            await self._cluster.create(volume, "")
            await self._cluster.patch_status("persistentvolumes", Key("", volume_name), {"phase": "Bound"})
            await self._cluster.create(claim, namespace)
            bound = {"phase": "Bound", "capacity": capacity, "accessModes": modes}
            await self._cluster.patch_status("persistentvolumeclaims", Key(namespace, claim_name), bound)
            self._progress("volumes", index + 1, count)

        def with_volume(index: int) -> Document:
            made = pod(index)
            claim = {"claimName": f"pvc-{numbers[index]}"}
            made["spec"]["volumes"] = [{"name": "vol", "persistentVolumeClaim": claim}]
            return made

        return with_volume

    async def _steadily(self, namespace: str, op: ops.CreatePods) -> None:
        """Keep so many pods pending: delete each that gets a node and create another, until the time is over."""
        cluster, done = self._cluster, 0
        backlog: deque[Key] = deque()

        def on_scheduled(key: Key, _labels: Mapping[str, str]) -> None:
            if key.namespace == namespace:
                backlog.append(key)

        cluster.pods.listeners.append(on_scheduled)
        ends = cluster.now() + ops.seconds(op.duration)
        try:
            await self._rapidly(namespace, op, op.count)
            while (left_s := ends - cluster.now()) > 0:
                if not await cluster.wait(lambda: bool(backlog), left_s):
                    break
                ready = [backlog.popleft() for _ in range(len(backlog))]
                for key in ready:
                    await cluster.delete("pods", key, 0)
                await self._rapidly(namespace, op, len(ready))
                done += len(ready)
                self._progress("steady state", done, done)
        finally:
            cluster.pods.listeners.remove(on_scheduled)
        if not done:
            raise Failed("no pod at all got scheduled, either because of a problem or because the time was too short")

    async def _wait(self, namespace: str, labels: Mapping[str, str], count: int, stage: str) -> None:
        pods = self._cluster.pods

        def is_done() -> bool:
            done = pods.count(namespace, labels, stage)
            self._progress(f"waiting for {namespace}", min(done, count), count)
            return done >= count

        if not await self._cluster.wait(is_done, FOREGROUND_LIMIT_S):
            done, what = (
                pods.count(namespace, labels, stage),
                "have a node" if stage == "Scheduled" else "were attempted",
            )
            name = pods.waiting(namespace, labels)
            example = f"; not {namespace}/{name}" if name and stage == "Scheduled" else ""
            raise Failed(f"{done} of {count} pods of {namespace} {what}{example}")

    async def _barrier(self, op: ops.Barrier) -> None:
        for name in op.namespaces:
            if name not in self._unawaited:
                raise Failed(f"unknown namespace {name}")
        names = op.namespaces or list(self._unawaited)
        stage = op.stage_requirement or "Scheduled"
        for name in names:
            await self._wait(name, op.label_selector, self._unawaited[name], stage)
        if stage == "Scheduled":
            for name in names:
                self._unawaited[name] = 0

    async def _delete_pods(self, op: ops.DeletePods) -> None:
        keys = iter(self._cluster.pods.keys(op.namespace, op.label_selector))
        if not op.delete_pods_per_second:
            for key in keys:
                await self._cluster.delete("pods", key)
            return

        async def one() -> bool:
            key = next(keys, None)
            if key is not None:
                await self._cluster.delete("pods", key)
            return key is not None

        interval_s = 1 / op.delete_pods_per_second
        if op.skip_wait_to_completion:
            self._cluster.every(interval_s, one)
            return
        while await one():
            await self._cluster.sleep(interval_s)

    async def _check_scheduled(self, op: ops.CheckPodScheduled) -> None:
        await self._ensure_namespace(op.namespace)
        pods, limit_s = self._cluster.pods, ops.seconds(op.duration)
        total = len(pods.keys(op.namespace, {}))

        def count_scheduled() -> int:
            return pods.count(op.namespace, {}, "Scheduled")

        if op.expected_scheduled:
            if not await self._cluster.wait(lambda: count_scheduled() >= total, limit_s):
                raise Failed(f"{count_scheduled()} of {total} pods of {op.namespace} have a node after {op.duration}")
        elif await self._cluster.wait(lambda: count_scheduled() > 0, min(limit_s, STABLE_S)):
            raise Failed(f"{count_scheduled()} of {total} pods of {op.namespace} have a node; none was expected to")

    async def _churn(self, number: int, op: ops.Churn) -> None:
        cluster = self._cluster
        namespace = f"namespace-{number}" if op.namespace is None else op.namespace
        await self._ensure_namespace(namespace)
        object_templates = [self._template(path) for path in op.template_paths]
        targets: list[tuple[ObjectTemplate, str, str]] = []
        for object_template in object_templates:
            kind = kind_of(object_template.fill({}))
            if kind is None:
                raise Failed(f"{object_template.path}: keplab has no such kind")
            targets.append((object_template, kind.name, namespace if kind.namespaced else ""))
        slots: list[list[str]] = [[""] * max(op.number, 1) for _ in targets]
        cycles = itertools.count()

        async def churn() -> bool:
            cycle = next(cycles)
            for place, (template, kind, where) in enumerate(targets):
                if op.mode == "create":
                    await _created_name(cluster.create(template.fill({}), where))
                    continue
                slot = cycle % op.number
                name = slots[place][slot]
                if name:
                    await cluster.delete(kind, Key(where, name))
                    slots[place][slot] = ""
                else:
                    slots[place][slot] = await _created_name(cluster.create(template.fill({}), where))
            return op.mode == "recreate" or not op.number or cycle + 1 < op.number

        cluster.every(op.interval_milliseconds / 1000 if op.interval_milliseconds else CHURN_INTERVAL_S, churn)

    # --- groups and devices ---

    async def _create_pod_groups(self, op: ops.CreatePodGroups) -> None:
        await self._ensure_namespace(op.namespace)
        fill = self._fill(op.template_path, op.count, op.template_params, {})
        await self._cluster.create_all(op.count, fill, lambda _: op.namespace)
        await self._wait_for_groups(op.namespace, op.count)

    async def _wait_for_groups(self, namespace: str, count: int) -> None:
        ends, group_count = self._cluster.now() + GROUPS_LIMIT_S, -1
        while self._cluster.now() < ends:
            group_count = len(await self._cluster.documents(POD_GROUPS, namespace))
            if group_count >= count:
                return
            await self._cluster.sleep(0.1)
        raise Failed(f"{group_count} of {count} PodGroups of {namespace} are there after {GROUPS_LIMIT_S:g} s")

    async def _create_driver(self, op: ops.CreateResourceDriver) -> None:
        names = [each["metadata"]["name"] for each in await self._cluster.documents("nodes")]
        chosen = [name for name in names if fnmatch.fnmatchcase(name, op.nodes)]
        if not chosen:
            raise Failed(f"no node matches {op.nodes!r}")
        # With conditions, pods wait until updateDeviceConditions sets them: only for workloads that are about that.
        waits = self._workload.gates.get(BINDING_CONDITIONS, False)
        devices = [_device(number, waits=waits) for number in range(op.max_claims_per_node)]

        def slice_of(index: int) -> Document:
            name = chosen[index]
            pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": op.driver_name, "nodeName": name, "pool": pool, "devices": devices}
            return {"apiVersion": DRA_VERSION, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}

        await self._cluster.create_all(len(chosen), slice_of, lambda _: "")

    async def _allocate_claims(self, op: ops.AllocResourceClaims) -> None:
        kinds = (CLAIMS, "nodes", "resourceslices.resource.k8s.io", "deviceclasses.resource.k8s.io")
        claims, nodes, slices, classes = [await self._cluster.documents(kind) for kind in kinds]
        try:
            for key, status in allocations(claims, nodes, slices, classes, op.namespace, self._cluster.random):
                await self._cluster.patch_status(CLAIMS, key, status)
        except NoDevices as error:
            raise Failed(str(error)) from None

    async def _update_conditions(self, op: ops.UpdateDeviceConditions) -> None:
        await self._ensure_namespace(op.namespace)
        kind, status = op.condition_type, op.condition_status
        asked = op.conditions or [{"type": kind, "status": status}]
        ends = self._cluster.now() + ops.seconds(op.duration)
        done: set[str] = set()
        while self._cluster.now() < ends:
            claims = await self._cluster.documents(CLAIMS, op.namespace)
            for claim in claims:
                name = claim["metadata"]["name"]
                results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
                waiting = [r for r in results if r.get("bindingConditions") or r.get("bindingFailureConditions")]
                if name in done or not waiting:
                    continue
                conditions = [{"reason": "Test", "message": "Test", "lastTransitionTime": CREATED, **c} for c in asked]
                devices = [
                    {**{part: result[part] for part in ("driver", "pool", "device")}, "conditions": conditions}
                    for result in waiting
                ]
                await self._cluster.patch_status(CLAIMS, Key(op.namespace, name), {"devices": devices})
                done.add(name)
            if claims and len(done) == len(claims):
                return
            await self._cluster.sleep(0.2)
        raise Failed(f"{len(done)} claims of {op.namespace} had devices that wait for conditions after {op.duration}")

    # --- metrics ---

    async def _start_collecting(
        self, name: str, namespaces: list[str], labels: Mapping[str, str], collectors: list[str] | None = None
    ) -> None:
        if self._collection is not None:
            raise Failed(f"metrics are collected already, as {self._collection.name}; collections must not overlap")
        full_name = f"{self._workload.full_name}/{name}"
        config = self._workload.collector
        self._collection = Collection(self._cluster, full_name, namespaces, labels, config, collectors or ())
        await self._collection.begin()

    async def _stop_collecting(self) -> None:
        collection = self._collection
        if collection is None:
            raise Failed("nothing is collected; startCollectingMetrics comes first")
        self._collection = None
        data_items = await collection.end()
        workload, throughput = self._workload, collection.throughput
        threshold, metric = workload.threshold(self._topic), workload.selector.name
        compared = compare(data_items, threshold, workload.selector)
        if threshold and not compared:
            self.remarks.append(f"{collection.name}: no {metric} to compare with the threshold {threshold:g}")
        self.comparisons += compared
        self.items += data_items
        span_s = throughput.last_s - collection.began_s if throughput.scheduled else 0.0
        rate = throughput.scheduled / span_s if span_s > 0 else 0.0
        self.measured.append(Measured(collection.name, throughput.scheduled, span_s, rate, bool(throughput.samples)))


async def _created_name(creating: Awaitable[str]) -> str:
    """Return the name of what was created, "" where it was refused: churn goes on."""
    try:
        return await creating
    except Failed:
        return ""


def _name(document: Document, name: str, annotations: Mapping[str, str]) -> None:
    metadata = document["metadata"]
    metadata.pop("generateName", None)
    metadata["name"] = name
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}


def _device(number: int, *, waits: bool) -> Document:
    """Return a device as upstream's driver has it; `waits`: a pod that gets it waits for a condition."""
    attributes = {
        "model": {"string": "A100"},
        "family": {"string": "GPU"},
        "driverVersion": {"version": "1.2.3"},
        "dra.example.com/numa": {"int": number},
    }
    conditions: Document = {
        "bindsToNode": True,
        "bindingConditions": ["DeviceAttached"],
        "bindingFailureConditions": ["AttachmentFailed"],
    }
    name = f"instance-{number}"
    return {
        "name": name,
        "attributes": attributes,
        "capacity": {"memory": {"value": "1Gi"}},
        **(conditions if waits else {}),
    }
