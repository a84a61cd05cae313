"""Operations on the scheduler's core alone: objects are delivered as a watch would, and idle time is
skipped.

The work of other components is missing: claims are not created from templates, pod groups are not
scheduled as one, and devices do not wait for conditions.
"""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from lab.benchmarks.algorithm import Algorithm, TooSlow
from lab.benchmarks.running_mesh import rss_mib
from lab.benchmarks.scheduler_perf.cluster import MB_OF_MIB, Failed, Unsupported, kind_of
from lab.benchmarks.scheduler_perf.pods import Pods, PodState
from lab.benchmarks.scheduler_perf.typed_values import with_text_amounts
from lab.benchmarks.workloads import documents
from lab.benchmarks.workloads.documents import CREATED, NewObject
from scheduler.framework.cycle_state import Diagnosis
from services.api.kinds.pod import Pod
from services.api.meta import Document, Key
from services.api.seams import Random
from services.api.switches import Switches
from services.runtime.config import StartError
from services.telemetry.exposition import exposition

NOT_HERE: Final = {
    "podgroups.scheduling.k8s.io": "pod groups are scheduled by a loop that form algorithm does not have",
    "workloads.scheduling.k8s.io": "pod groups are scheduled by a loop that form algorithm does not have",
}
MESH: Final = "use --form mesh"
FIXED: Final = ("namespace", "uid", "creationTimestamp")  # what no update changes, whether it says so or not


class CoreCluster:
    """The scheduler's core alone as a cluster; see the module."""

    form = "algorithm"

    def __init__(self, switches: Switches, config: str = "") -> None:
        """Create the core. `config`: path of a KubeSchedulerConfiguration file; empty for none. Raises: Failed."""
        self.pods = Pods()
        try:
            self._algorithm = Algorithm(switches, config=config, observer=self)
        except StartError as error:
            raise Failed(str(error)) from None
        self.random: Random = self._algorithm.handle.random
        self._views: dict[Key, Pod] = {}
        self._documents: dict[str, dict[Key, Document]] = {}
        self._nodes: dict[str, Any] = {}
        self._numbers = itertools.count()

    @property
    def in_flight_events(self) -> int:
        """Number of events kept for pods in flight."""
        return self._algorithm.core.queue.in_flight_event_count

    # --- what becomes of pods ---

    def on_attempted(self, pod: Pod, diagnosis: Diagnosis | None) -> None:
        """Note a scheduling attempt of a pod."""
        key = pod.metadata.key
        if diagnosis is not None:
            self.pods.note_refusal(key, lambda: diagnosis.message)
        if key in self._views:
            self._views[key] = pod
            self.pods.put(key, PodState(pod.metadata.labels, pod.spec.node_name, True))

    def on_deleted(self, pod: Pod) -> None:
        """Note that a pod is gone."""
        key = pod.metadata.key
        self._views.pop(key, None)
        self._documents.get("pods", {}).pop(key, None)
        self.pods.drop(key)

    # --- objects ---

    def now(self) -> float:
        """Return the core's time in seconds."""
        return self._algorithm.now()

    async def create(self, document: Document, namespace: str, *, is_strict: bool = False) -> str:
        """Deliver a new object to the core and return its name. Raises: Failed, Unsupported."""
        del is_strict  # there is no API server that would check the fields
        kind = kind_of(document)
        if kind is None:
            raise Failed(f"keplab has no kind {document.get('kind')} in {document.get('apiVersion')}")
        if kind.name in NOT_HERE:
            raise Unsupported(f"{NOT_HERE[kind.name]}; {MESH}")
        metadata = document.setdefault("metadata", {})
        own = (namespace or metadata.get("namespace") or "") if kind.namespaced else ""
        if kind.namespaced != bool(own) or (namespace and not kind.namespaced):
            raise Failed(f"{kind.kind}: namespace {namespace!r} and a kind whose namespaced is {kind.namespaced}")
        name = metadata.get("name") or f"{metadata.get('generateName', '')}{next(self._numbers):05d}"
        key = Key(own, name)
        stored = self._documents.setdefault(kind.name, {})
        if key in stored:
            if kind.kind == "Namespace":
                return str(name)
            raise Failed(f"{kind.kind} {key} exists already")
        metadata.update({"name": name, "uid": f"{own}-{name}", "creationTimestamp": CREATED})
        if own:
            metadata["namespace"] = own
        metadata.pop("generateName", None)
        stored[key] = document
        self._show(kind.name, key, document)
        return str(name)

    def _show(self, kind: str, key: Key, document: Document) -> None:
        with_text_amounts(document)
        try:
            self._show_typed(kind, key, document)
        except msgspec.ValidationError as error:
            raise Failed(f"{document.get('kind')} {key}: {error}") from None

    def _show_typed(self, kind: str, key: Key, document: Document) -> None:
        algorithm = self._algorithm
        if kind == "nodes":
            self._nodes[key.name] = algorithm.add_node(NewObject("", key.name, msgspec.json.encode(document)))
        elif kind == "pods":
            self._show_pod(key, document)
        else:
            algorithm.add_other(kind.partition(".")[0], document)

    def _show_pod(self, key: Key, document: Document) -> None:
        spec = document["spec"]
        if any("resourceClaimTemplateName" in each for each in spec.get("resourceClaims", ())):
            raise Unsupported(
                f"claims are made from templates by a controller that form algorithm does not have; {MESH}"
            )
        uid = document["metadata"]["uid"]
        pod_document = documents.stored_pod(copy.deepcopy(document))
        pod_document["metadata"]["uid"] = uid
        pod = self._algorithm.decode(NewObject(key.namespace, key.name, msgspec.json.encode(pod_document)))
        node = pod.spec.node_name
        self._views[key] = pod
        self._algorithm.add_pod(pod)
        if node:
            self._algorithm.bound[uid] = pod
        self.pods.put(key, PodState(pod.metadata.labels, node, bool(node or spec.get("schedulingGates"))))

    async def create_all(
        self, count: int, document: Callable[[int], Document], namespace: Callable[[int], str]
    ) -> list[str]:
        """Deliver many new objects to the core; return their names."""
        return [await self.create(document(index), namespace(index)) for index in range(count)]

    async def update(self, document: Document, namespace: str, subresource: str) -> None:
        """Deliver a changed object to the core. Raises: Failed, Unsupported."""
        kind = kind_of(with_text_amounts(document))
        if kind is None:
            raise Failed(f"keplab has no kind {document.get('kind')} in {document.get('apiVersion')}")
        key = Key(namespace if kind.namespaced else "", str(document["metadata"].get("name", "")))
        old = self._documents.get(kind.name, {}).get(key)
        if old is None:
            raise Failed(f"{kind.kind} {key} not found")
        if subresource == "status":
            new = {**old, "status": document.get("status", {})}
        elif subresource == "resize":
            new = _with_resources(old, document)
        elif subresource:
            raise Unsupported(f"form algorithm has no subresource {subresource}; {MESH}")
        else:
            fixed = {name: old["metadata"][name] for name in FIXED if name in old["metadata"]}
            status = {"status": old["status"]} if "status" in old else {}
            new = {**document, "metadata": {**document["metadata"], **fixed}, **status}
        self._documents[kind.name][key] = new
        await self._update(kind.name, key, new)

    async def _update(self, kind: str, key: Key, new: Document) -> None:
        algorithm, core = self._algorithm, self._algorithm.core
        if kind == "nodes":
            old = self._nodes[key.name]
            view = self._nodes[key.name] = msgspec.convert(new, type(old))
            core.handlers.on_node(old, view, self.now())
        elif kind == "pods":
            before = self._views[key]
            pod_document = documents.stored_pod(copy.deepcopy(new))
            pod_document["metadata"]["uid"] = before.metadata.uid
            pod_document["metadata"]["resourceVersion"] = str(int(before.metadata.resource_version) + 1)
            pod = algorithm.decode(NewObject(key.namespace, key.name, msgspec.json.encode(pod_document)))
            if before.spec.node_name:
                pod = replace(pod, spec=replace(pod.spec, node_name=before.spec.node_name))
                algorithm.bound[pod.metadata.uid] = pod
            self._views[key] = pod
            core.handlers.on_pod(before, pod, self.now())
        else:
            algorithm.add_other(kind.partition(".")[0], new)

    async def patch_status(self, kind: str, key: Key, status: Document) -> None:
        """Deliver an object with a changed status. Raises: Unsupported for conditions of devices."""
        if "devices" in status:
            raise Unsupported(f"nothing waits for conditions of devices in form algorithm; {MESH}")
        old = self._documents[kind][key]
        new = self._documents[kind][key] = {**old, "status": {**old.get("status", {}), **status}}
        await self._update(kind, key, new)

    async def delete(self, kind: str, key: Key, grace_s: int | None = None) -> bool:
        """Deliver the deletion of an object, or the deletion timestamp of a pod with finalizers."""
        del grace_s  # there are no kubelets that would stop anything
        document = self._documents.get(kind, {}).get(key)
        if document is None:
            return False
        algorithm = self._algorithm
        if kind == "pods":
            pod = self._views[key]
            if document["metadata"].get("finalizers"):
                deleted = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=CREATED))
                self._views[key] = deleted
                algorithm.core.handlers.on_pod(pod, deleted, self.now())
            else:
                algorithm.delete_pod(pod)
            return True
        del self._documents[kind][key]
        if kind == "nodes":
            algorithm.delete_node(self._nodes.pop(key.name))
        else:
            algorithm.drop_other(kind.partition(".")[0], key)
        return True

    async def documents(self, kind: str, namespace: str = "") -> Sequence[Document]:
        """Return the objects of a kind."""
        found = self._documents.get(kind, {})
        return [each for key, each in found.items() if namespace in ("", key.namespace)]

    # --- time ---

    async def wait(self, is_done: Callable[[], bool], limit_s: float) -> bool:
        """Schedule until `is_done` returns true, `limit_s` of the core's time have passed, or nothing can change it.
        Return whether it is true.
        """
        ends = self.now() + limit_s
        self._algorithm.at(ends, lambda: None)
        try:
            self._algorithm.run_until(lambda: is_done() or self.now() >= ends, lambda: "waiting", limit_s)
        except TooSlow:
            return is_done()
        except AssertionError as error:
            raise Failed(str(error)) from None
        return is_done()

    async def sleep(self, seconds: float) -> None:
        """Schedule until `seconds` of the core's time have passed."""
        await self.wait(lambda: False, seconds)

    def every(self, interval_s: float, do: Callable[[], Awaitable[bool]]) -> None:
        """Call `do` in every interval of the core's time from now on, until it returns False."""

        def turn() -> float | None:
            doing = do().__await__()
            try:
                next(doing)
            except StopIteration as ended:
                return interval_s if ended.value else None
            raise AssertionError("what is done in every interval waits for something")

        self._algorithm.at(self.now() + interval_s, turn)

    # --- figures ---

    async def metrics(self) -> str:
        """Return the core's metrics in Prometheus' text format."""
        core = self._algorithm.core
        samples = core.metrics.samples(core.queue, core.cache, core.exclusions)
        return exposition(samples, has_process=False)[1].decode()

    def memory_mb(self) -> float:
        """Return the resident memory of this process, which runs the core, in MB."""
        return rss_mib(os.getpid()) * MB_OF_MIB


def _with_resources(pod: Document, wanted: Document) -> Document:
    """Return the pod with the resources that the containers of another document have by the same names."""
    resources = {each["name"]: each.get("resources", {}) for each in wanted.get("spec", {}).get("containers", ())}
    containers = [
        {**each, "resources": {**each.get("resources", {}), **resources.get(each["name"], {})}}
        for each in pod["spec"]["containers"]
    ]
    return {**pod, "spec": {**pod["spec"], "containers": containers}}
