"""The state of a node's runtime, derived from the reported statuses of its pods. Pure.

It serves a mesh that is begun from stored objects, and pods that are imported into a running one: of a
node, only what its kubelet reported is known. Exclusive CPUs, memory of NUMA nodes and devices of plugins
are in no status, so they are not known; all else goes on as it was.
"""

from collections.abc import Iterable, Iterator

import msgspec

from kubelet.runtime.claims import HeldClaim
from kubelet.runtime.records import ContainerRecord, PodRecord
from kubelet.runtime.resources import PodResources, resources_of
from kubelet.view import KubeletContainer, KubeletPod, worker_key
from services.api.errors import UNREADABLE
from services.api.kinds.pod import BEGAN, ContainerStatus, PodStatus
from services.api.times import parse_time


def reported_record(pod: KubeletPod, claims: tuple[HeldClaim, ...], wall_base_s: float) -> PodRecord | None:
    """Return the record of a pod whose containers were started; None if no container has run.

    `wall_base_s`: the wall clock's seconds at second zero of the node's own clock.
    """
    policy, spec, status = pod.spec.restart_policy, pod.spec, pod.status
    shown = (
        *_each(spec.init_containers, status.init_container_statuses, "OnFailure"),
        *_each(spec.containers, status.container_statuses, policy),
        *_each(spec.ephemeral_containers, status.ephemeral_container_statuses, "Never"),
    )
    containers = [record for each in shown if (record := _container(*each, wall_base_s)) is not None]
    if not containers or pod.is_terminal:
        return None
    key = worker_key(pod)
    start = parse_time(pod.status.start_time) - wall_base_s if pod.status.start_time else 0.0
    return PodRecord(
        pod.spec.node_name,
        key.uid,
        key.generation,
        pod.metadata.namespace,
        pod.metadata.name,
        pod.status.pod_ip,
        start,
        containers,
        allocated=_sizes(pod),
        claims=claims,
    )


def taken_over(pod: KubeletPod) -> KubeletPod | None:
    """Return an imported pod with the status that another kubelet reported for it, or None.

    None for a pod that was not imported, that a kubelet here has reported already, or whose claims a driver has
    to prepare.
    """
    text = pod.metadata.annotations.get(BEGAN)
    is_new = not (pod.status.start_time or pod.status.container_statuses or pod.status.binding_generation)
    if text is None or not is_new or pod.is_terminal or pod.spec.resource_claims:
        return None
    try:
        status = msgspec.json.decode(text, type=PodStatus)
        for moment in _moments(status):
            parse_time(moment)
    except (*UNREADABLE, ValueError):
        return None
    shown = msgspec.structs.replace(
        pod.status,
        start_time=status.start_time,
        conditions=status.conditions,
        init_container_statuses=status.init_container_statuses,
        container_statuses=status.container_statuses,
    )
    return msgspec.structs.replace(pod, status=shown)


def _moments(status: PodStatus) -> Iterator[str]:
    if status.start_time:
        yield status.start_time
    for container_status in (*status.init_container_statuses, *status.container_statuses):
        for state in (container_status.state, container_status.last_state):
            if state.running is not None and state.running.started_at:
                yield state.running.started_at
            if state.terminated is not None:
                yield from filter(None, (state.terminated.started_at, state.terminated.finished_at))


def _each(
    containers: Iterable[KubeletContainer], statuses: Iterable[ContainerStatus], policy: str
) -> Iterator[tuple[ContainerStatus, str]]:
    """Yield what is reported of containers that have run, with their restart policies."""
    own = {each.name: each.restart_policy for each in containers}
    return ((status, own.get(status.name) or policy) for status in statuses)


def _container(status: ContainerStatus, policy: str, wall_base_s: float) -> ContainerRecord | None:
    def seconds(text: str | None) -> float:
        return parse_time(text) - wall_base_s if text else 0.0

    if (running := status.state.running) is not None:
        return ContainerRecord(status.name, seconds(running.started_at), status.restart_count)
    ended = status.state.terminated or status.last_state.terminated
    if ended is None:
        return None
    record = ContainerRecord(status.name, seconds(ended.started_at), status.restart_count)
    # As in the runtime's own record, one that runs again is known by its start alone: its script says when that ended.
    if status.state.terminated is not None and (policy == "Never" or (policy == "OnFailure" and ended.exit_code == 0)):
        record.exit_code, record.finished_s = ended.exit_code, seconds(ended.finished_at)
    return record


def _sizes(pod: KubeletPod) -> PodResources:
    """Return the size that was allocated: what the statuses report of it, else what the pod asks for."""
    sizes = resources_of(pod)
    allocated_sizes = dict(sizes.containers)
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if status.name in allocated_sizes and status.resources is not None:
            allocated_sizes[status.name] = status.resources
    return msgspec.structs.replace(sizes, containers=allocated_sizes)
