"""Usage of pods and nodes at the last scrape: the emulated usage, sampled every 15 s. Pure.

A container's emulated usage is described in its pod's annotations and counted from the start time in its
status. Metrics are scraped from kubelets, so a node whose Lease was not renewed in the window has none. A pod
has metrics while it runs, and only if none of its running containers started within the window. The load in a
workload's `keplab.dev/load` annotation is divided evenly among its ready pods: resources are added to the first
container of each pod, other names become custom metrics of the pod. Where keplab's annotations do not describe
a pod's usage, KWOK's ResourceUsages may. Source: upstream `kubernetes-sigs/metrics-server` `pkg/storage`,
`pkg/api`; decision 0029.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from apiserver_fake.storage.records import Selection
from apiserver_fake.storage.store import Store
from services.api.kinds.lease import Lease
from services.api.kinds.pod import Pod
from services.api.meta import AnyObject, Document, ObjectMeta, condition_status
from services.api.metrics.usage import LOAD_ANNOTATION, UsageDocuments, curves_in, memory_used, text_for, value_at
from services.api.resources import resource_of_kind
from services.api.times import seconds_of

RESOLUTION_S = 15
"""Period and averaging window of metrics, in seconds (metrics-server's `--metric-resolution`)."""
LEASES, LEASE_NAMESPACE = "leases.coordination.k8s.io", "kube-node-lease"
OWNERS_MAX = 4
_POD, _LEASE, _OBJECT = msgspec.json.Decoder(Pod), msgspec.json.Decoder(Lease), msgspec.json.Decoder(AnyObject)


class Used(NamedTuple):
    """CPU in thousandths of a core, memory in bytes."""

    cpu: int
    memory: int


class Scrape:
    """One scrape of the store. `at_s`: time of the last sample, in epoch seconds; `usages`: usage from KWOK's
    documents.
    """

    def __init__(self, store: Store, wall_s: float, usages: UsageDocuments | None = None) -> None:
        self._store, self._usages = store, usages
        self.at_s = float(int(wall_s) // RESOLUTION_S * RESOLUTION_S)
        self._alive: dict[str, bool] = {}
        self._workloads: dict[str, tuple[ObjectMeta, ...]] = {}
        self._ready: dict[str, Counter[str]] = {}
        self._documents: dict[tuple[str, str, str], Document] = {}

    def pods(self, selection: Selection) -> list[Pod]:
        """Return the selected pods that have been scraped, in key order."""
        return [pod for pod in self._select(selection) if self.is_scraped(pod)]

    def is_scraped(self, pod: Pod) -> bool:
        """Whether the pod is Running on a node whose kubelet answered."""
        return pod.status.phase == "Running" and self.is_alive(pod.spec.node_name)

    def pod(self, namespace: str, name: str) -> Pod | None:
        """Return the pod, scraped or not."""
        record = self._store.get("pods", namespace, name)
        return None if record is None else _POD.decode(record.body)

    def is_alive(self, node: str) -> bool:
        """Whether the node's kubelet answered the scrape: it renewed its Lease shortly before the scrape, or after
        it.

        A Lease is renewed every quarter of its duration; a renewal may be late by half of that period.
        """
        if node not in self._alive:
            record = self._store.get(LEASES, LEASE_NAMESPACE, node)
            spec = _LEASE.decode(record.body).spec if record is not None else None
            self._alive[node] = spec is not None and seconds_of(spec.renew_time) >= self.at_s - max(
                RESOLUTION_S, spec.lease_duration_seconds * 3 / 8
            )
        return self._alive[node]

    def containers(self, pod: Pod) -> dict[str, Used]:
        """Return the usage of a scraped pod's running containers, by name; {} while one of them is new."""
        statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
        starts = {each.name: seconds_of(each.state.running.started_at) for each in statuses if each.state.running}
        sidecars = [each.name for each in pod.spec.init_containers if each.restart_policy == "Always"]
        running = [name for name in (*(each.name for each in pod.spec.containers), *sidecars) if name in starts]
        if any(starts[name] > self.at_s - RESOLUTION_S for name in running):
            return {}
        usages = {name: self._usage(pod, name, self.at_s - starts[name]) for name in running}
        share = self.share(pod)
        if share and pod.spec.containers[0].name in usages:
            name = pod.spec.containers[0].name
            used = usages[name]
            usages[name] = Used(used.cpu + share.get("cpu", 0), used.memory + share.get("memory", 0) // 1000)
        return usages

    def _usage(self, pod: Pod, container: str, age_s: float) -> Used:
        annotations = pod.metadata.annotations
        if self._usages:
            document = self._document("pods", pod.metadata.namespace, pod.metadata.name)
            if self._usages.says(document, container):
                node = self._document("nodes", "", pod.spec.node_name)
                cores, size = (
                    self._usages.container_usage(resource, node, document, container, self.at_s)
                    for resource in ("cpu", "memory")
                )
                return Used(round(cores * 1000), int(size))
        curves = curves_in(text_for(annotations, container))
        memory = value_at(curves["memory"], age_s) if "memory" in curves else memory_used(annotations, container)
        return Used(value_at(curves.get("cpu", ()), age_s), memory)

    def _document(self, resource: str, namespace: str, name: str) -> Document:
        """Return the object, decoded once a scrape; with its name alone when it is not there."""
        key = resource, namespace, name
        if key not in self._documents:
            record = self._store.get(*key)
            self._documents[key] = (
                msgspec.json.decode(record.body) if record is not None else {"metadata": {"name": name}, "spec": {}}
            )
        return self._documents[key]

    def share(self, pod: Pod) -> Mapping[str, int]:
        """Return a ready pod's share of its workloads' load: thousandths by series."""
        load_by_series: Counter[str] = Counter()
        if condition_status(pod.status.conditions, "Ready") != "True" or pod.metadata.deletion_timestamp is not None:
            return load_by_series
        # A Deployment's annotations are its ReplicaSets' as well: what the topmost workload says counts, once.
        for workload in reversed(self._workloads_of(pod)):
            if text := workload.annotations.get(LOAD_ANNOTATION, ""):
                age_s = max(0.0, self.at_s - seconds_of(workload.creation_timestamp))
                ready = max(1, self._ready_in(pod.metadata.namespace)[workload.uid])
                for series, points in curves_in(text, ()).items():
                    load_by_series[series] += value_at(points, age_s) // ready
                break
        return load_by_series

    def _ready_in(self, namespace: str) -> Counter[str]:
        """Return how many ready pods the workloads of a namespace have, by uid."""
        if namespace not in self._ready:
            self._ready[namespace] = Counter(
                workload.uid
                for pod in self._select(Selection(namespace))
                if condition_status(pod.status.conditions, "Ready") == "True" and not pod.metadata.deletion_timestamp
                for workload in self._workloads_of(pod)
            )
        return self._ready[namespace]

    def _workloads_of(self, pod: Pod) -> Sequence[ObjectMeta]:
        """Return the pod's controller, that one's controller, and so on."""
        first = reference = pod.metadata.controller
        if first is None or first.uid in self._workloads:
            return self._workloads[first.uid] if first is not None else ()
        workloads: list[ObjectMeta] = []
        while reference is not None and len(workloads) < OWNERS_MAX:
            resource = resource_of_kind(reference.api_version, reference.kind)
            record = self._store.get(resource.name, pod.metadata.namespace, reference.name) if resource else None
            if record is None or record.uid != reference.uid:
                break
            workloads.append(_OBJECT.decode(record.body).metadata)
            reference = workloads[-1].controller
        self._workloads[first.uid] = tuple(workloads)
        return self._workloads[first.uid]

    def _select(self, selection: Selection) -> list[Pod]:
        return [_POD.decode(record.body) for record in self._store.select("pods", selection).records]
