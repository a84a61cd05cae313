"""The metrics of a host of nodes, under upstream's names: one table, and the values it reads. Pure.

A node's machine counts by name and label values (`Outbox.counts`); all nodes of a process are shown
together. Source: kubelet 10; kep-1287-in-place-resize 12; kep-5836 11; kubelet-unbinding 8; dra-core 7;
upstream `pkg/kubelet/metrics`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from kubelet.dra.manager import CALL, OPERATION
from kubelet.kubelet import Kubelet
from kubelet.managers.resource_managers import ALIGNED, FAILED
from kubelet.pod.context import RESIZE_IN_PROGRESS, RESIZE_PENDING
from kubelet.pod.pod import Pod
from kubelet.pod.start_times import SLI, START, WORKER
from kubelet.pod.states import ContainerState
from kubelet.resize.manager import TOOK_MS, WAITED, priority_bucket
from kubelet.runtime.pleg import Pleg
from kubelet.unbind.manager import UNTIL_RUNNING
from services.telemetry.metrics import Histogram, Metric, Metrics, counter, gauge, histogram

Labels = tuple[str, ...]
P = TypeVar("P")
_STATES = {ContainerState.RUNNING: "running", ContainerState.EXITED: "exited"}
PENDING = "kubelet_pod_pending_resizes"
_TOPOLOGY = "kubelet_topology_manager_admission"
_SYNC = "kubelet_pod_status_sync_duration_seconds"
_RELIST, _INTERVAL = "kubelet_pleg_relist_duration_seconds", "kubelet_pleg_relist_interval_seconds"
_EVENTED = "kubelet_evented_pleg_connection"
_WAITING_RESIZES = "Resizes that wait for capacity, or that this node can never satisfy."


@dataclass(frozen=True)
class HostState:
    """The state that is read when a process is scraped: its nodes' machines, and the counters of their shells."""

    kubelets: Sequence[Kubelet]
    now: float
    has_resize_preemption: bool
    nodes_ready: int
    timers: int
    status_writes: int
    status_failures: int
    lease_renewals: int
    node_writes: int
    checkpoint_batches: int
    checkpoint_syncs: int
    checkpoint_useless: int
    checkpoint_lost: int

    def pods(self) -> Iterator[Pod]:
        """Yield the pods of all nodes."""
        return (pod for kubelet in self.kubelets for pod in kubelet.table.pods.values())


def _sum(read: Callable[[Kubelet], float]) -> Callable[[HostState], float]:
    return lambda host: sum(read(kubelet) for kubelet in host.kubelets)


def _count_reader(name: str) -> Callable[[HostState], Mapping[Labels, float]]:
    def read(host: HostState) -> Mapping[Labels, float]:
        found: dict[Labels, float] = {}
        for kubelet in host.kubelets:
            for counts in (kubelet.out.counts, kubelet.managers.counters.counts):
                for labels, value in counts.of(name).items():
                    found[labels] = found.get(labels, 0) + value
        return found

    return read


def _counter(name: str, text: str, *labels: str) -> Metric[HostState]:
    return counter(name, text, _count_reader(name), *labels)


def _histogram(name: str, text: str, *labels: str) -> Metric[HostState]:
    """Declare what `Outbox.observe` counts."""

    def read(host: HostState) -> Mapping[Labels, Histogram]:
        histograms: dict[Labels, Histogram] = {}
        for kubelet in host.kubelets:
            for values, held in kubelet.out.distributions.get(name, {}).items():
                if values not in histograms:
                    histograms[values] = Histogram(held.bounds)
                histograms[values].add(held)
        return histograms

    return histogram(name, text, read, *labels)


def _sum_metric(
    name: str, text: str, total: Callable[[HostState], float], count: Callable[[HostState], float]
) -> Metric[HostState]:
    """Declare a distribution of which only its sum and the count of its values are known."""
    return histogram(name, text, lambda host: Histogram(sum=total(host), count=int(count(host))))


def _running(kubelet: Kubelet) -> int:
    stages = kubelet.staged_pods.manager
    return kubelet.table.running + (stages.running if stages is not None else 0)


def _containers(host: HostState) -> Mapping[str, int]:
    counts = Counter(_STATES.get(container.state, "waiting") for pod in host.pods() for container in pod.containers)
    return {state: counts[state] for state in ("running", "waiting", "exited")}


def _pending(host: HostState) -> list[tuple[str, str]]:
    """Return the class of the pod and the reason for each resize that is pending."""
    found = ((pod.pod.spec.priority, pod.conditions.get(RESIZE_PENDING)) for pod in host.pods())
    return [(priority_bucket(priority), held.reason.lower()) for priority, held in found if held is not None]


def _pending_by_reason(host: HostState) -> Mapping[str, int]:
    counts = Counter(reason for _, reason in _pending(host))
    return {} if host.has_resize_preemption else {reason: counts[reason] for reason in ("deferred", "infeasible")}


def _pending_by_priority(host: HostState) -> Mapping[Labels, int]:
    return Counter(_pending(host)) if host.has_resize_preemption else {}


def _claims_in_use(host: HostState) -> Mapping[str, int]:
    """Return how many claims each driver's devices are in use for, and all together."""
    held = (each.claim for kubelet in host.kubelets for each in kubelet.claims.cached.values())
    return Counter(driver for claim in held for driver in ("<any>", *claim.devices))


def _of_pleg(read: Callable[[Pleg, float], float]) -> Callable[[HostState], float]:
    return lambda host: sum(read(kubelet.runtime.pleg, host.now) for kubelet in host.kubelets)


def _of_those_with(
    part: Callable[[Kubelet], P | None], read: Callable[[P], int]
) -> Callable[[HostState], Mapping[Labels, float]]:
    """Read what is shown only where a node has that part."""

    def read_sum(host: HostState) -> Mapping[Labels, float]:
        parts = [found for kubelet in host.kubelets if (found := part(kubelet)) is not None]
        return {(): sum(map(read, parts))} if parts else {}

    return read_sum


def _stream(kubelet: Kubelet) -> Pleg | None:
    """Return the PLEG of a runtime that reports, or has reported, by itself."""
    return kubelet.runtime.pleg if kubelet.runtime.pleg.connections else None


METRICS: Final = Metrics(
    gauge("keplab_kubelet_nodes", "Nodes of this process.", lambda h: len(h.kubelets)),
    gauge("keplab_kubelet_nodes_ready", "Nodes that are registered and know their pods.", lambda h: h.nodes_ready),
    gauge("keplab_kubelet_timers", "Timers of all nodes.", lambda h: h.timers),
    # pods
    gauge("kubelet_running_pods", "Pods of which something runs.", _sum(_running)),
    gauge("kubelet_running_containers", "Containers by their state.", _containers, "container_state"),
    _counter("kubelet_admission_rejections_total", "Pods that were rejected.", "reason"),
    _counter("kubelet_preemptions", "Pods ended so that a critical one fits.", "preemption_signal"),
    _counter("kubelet_evictions", "Pods evicted because the node ran short.", "eviction_signal"),
    _histogram(START, "From admission to the first container."),
    _histogram(SLI, "From a pod's creation to the watch showing it started, less pulls and init containers."),
    _histogram(WORKER, "The first sync of a pod, and its end.", "operation_type"),
    _counter("kubelet_image_garbage_collected_total", "Images that were deleted.", "reason"),
    _sum_metric(
        _RELIST,
        "How long the runtime was asked for all containers.",
        _of_pleg(lambda pleg, now: pleg.relist_s * pleg.relists(now)),
        _of_pleg(Pleg.relists),
    ),
    _sum_metric(
        _INTERVAL,
        "From one relist to the next.",
        _of_pleg(Pleg.spanned_s),
        _of_pleg(lambda pleg, now: max(0, pleg.relists(now) - 1)),
    ),
    counter(
        f"{_EVENTED}_success_count",
        "Streams of events that the runtime opened.",
        _of_those_with(_stream, lambda pleg: pleg.connections),
    ),
    counter(f"{_EVENTED}_error_count", "Streams of events that failed.", _of_those_with(_stream, lambda p: p.errors)),
    # what is written
    gauge(
        "keplab_kubelet_status_waiting",
        "Pods whose newest status is not written.",
        _sum(lambda k: k.statuses.versions.waiting),
    ),
    counter("keplab_kubelet_status_writes_total", "Writes of pod statuses.", lambda h: h.status_writes),
    counter(
        "keplab_kubelet_status_write_failures_total", "Writes of pod statuses that failed.", lambda h: h.status_failures
    ),
    _sum_metric(
        _SYNC,
        "From a status's change to its acknowledgement.",
        _sum(lambda k: k.statuses.versions.sync_seconds_sum),
        _sum(lambda k: k.statuses.versions.syncs),
    ),
    counter("keplab_kubelet_lease_renewals_total", "Renewals of Leases.", lambda h: h.lease_renewals),
    counter("keplab_kubelet_node_status_writes_total", "Writes of Nodes' statuses.", lambda h: h.node_writes),
    counter(
        "keplab_kubelet_checkpoint_batches_total", "Appends to records and checkpoints.", lambda h: h.checkpoint_batches
    ),
    counter("keplab_kubelet_checkpoint_syncs_total", "Files that appends made durable.", lambda h: h.checkpoint_syncs),
    gauge(
        "keplab_kubelet_checkpoint_useless_lines",
        "Lines found at start that say nothing.",
        lambda h: h.checkpoint_useless,
    ),
    gauge(
        "keplab_kubelet_checkpoint_lost_pods", "Running pods the checkpoint did not know.", lambda h: h.checkpoint_lost
    ),
    # unbinding
    _counter("keplab_kubelet_pod_deferrals_total", "Rejected pods that were tried again, by how that ended.", "result"),
    _counter("kubelet_pod_unbind_total", "Answers to unbinds.", "reason", "result"),
    _counter("keplab_kubelet_pod_unbind_already_started_total", "Pods not unbound, as something of them had started."),
    _histogram("kubelet_pod_unbind_duration_seconds", "From a rejection to the unbind's success."),
    _histogram("kubelet_unbind_teardown_seconds", "Teardowns of pods to be unbound."),
    _histogram(UNTIL_RUNNING, "How often a pod was unbound before it ran."),
    # resizes
    gauge(
        "kubelet_pod_in_progress_resizes",
        "Resizes that are being carried out.",
        lambda h: sum(RESIZE_IN_PROGRESS in pod.conditions for pod in h.pods()),
    ),
    gauge(PENDING, _WAITING_RESIZES, _pending_by_reason, "reason"),
    gauge(PENDING, _WAITING_RESIZES, _pending_by_priority, "priority_bucket", "reason"),
    _counter(
        "kubelet_container_requested_resizes_total",
        "What resizes asked for, item by item.",
        "operation",
        "requirement",
        "resource",
    ),
    _counter("kubelet_pod_infeasible_resizes_total", "Resizes that this node can never satisfy.", "reason_detail"),
    _counter("kubelet_pod_deferred_accepted_resizes_total", "Deferred resizes that fit later.", "retry_trigger"),
    _histogram(WAITED, "How long resizes waited for capacity.", "priority_bucket", "resolution"),
    _histogram(TOOK_MS, "Attempts to carry a resize out.", "success"),
    # devices, CPUs and memory
    gauge("dra_resource_claims_in_use", "Claims whose devices pods use.", _claims_in_use, "driver_name"),
    _histogram(OPERATION, "Claims of a pod prepared, or unprepared.", "is_error", "operation_name"),
    _histogram(CALL, "Calls of drivers.", "driver_name", "grpc_status_code", "method_name"),
    _counter("kubelet_device_plugin_registration_total", "Registrations of device plugins.", "resource_name"),
    counter(
        f"{_TOPOLOGY}_requests_total", "Admissions by the resource managers.", _sum(lambda k: k.managers.admissions)
    ),
    counter(f"{_TOPOLOGY}_errors_total", "Pods they rejected.", _sum(lambda k: k.managers.counters.topology_errors)),
    _sum_metric(
        f"{_TOPOLOGY}_duration_ms",
        "How long that took.",
        _sum(lambda k: k.managers.admission_ms),
        _sum(lambda k: k.managers.admissions),
    ),
    _counter("kubelet_cpu_manager_pinning_requests_total", "Containers that asked for CPUs of their own."),
    _counter("kubelet_cpu_manager_pinning_errors_total", "Containers that did not get CPUs of their own."),
    _counter("kubelet_memory_manager_pinning_requests_total", "Containers that asked for memory of their own."),
    _counter("kubelet_memory_manager_pinning_errors_total", "Containers that did not get memory of their own."),
    _counter(ALIGNED, "Containers, or pods, that were aligned.", "scope", "boundary"),
    _counter(FAILED, "Containers, or pods, that could not be aligned.", "scope", "boundary"),
    gauge(
        "kubelet_cpu_manager_shared_pool_size_millicores",
        "CPUs that no container has to itself.",
        _of_those_with(lambda k: k.managers.cpus, lambda cpus: 1000 * len(cpus.shared_cpus)),
    ),
    gauge(
        "kubelet_cpu_manager_exclusive_cpu_allocation_count",
        "CPUs that containers have to themselves.",
        _of_those_with(lambda k: k.managers.cpus, lambda cpus: len(cpus.usable) - len(cpus.free)),
    ),
)
