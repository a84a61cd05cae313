"""Requests and limits of a pod: over containers, init containers, sidecars, pod level and overhead.

A pod that is being resized counts with the larger of its desired and its current resources.
Source: KEP-753 (sidecars), KEP-2837 (pod-level resources), KEP-1287 (resizes, "Notes" on ResourceQuota),
kep-1287 10, kep-5836 4; upstream `PodRequests` and `PodLimits` with `UseStatusResources` (v1.36).
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from services.api.kinds.pod import Container, ContainerStatus, Pod, ResourceRequirements
from services.api.quantity import amount

Amounts = dict[str, int]
"""Amounts by resource name, as integers: milli for cpu, units for all else."""

POD_LEVEL = frozenset({"cpu", "memory"})


def amounts(quantities: Mapping[str, str]) -> Amounts:
    """Return parsed quantities. Raises: ValueError naming a malformed one."""
    return {name: amount(name, text) for name, text in quantities.items()}


def container_requests(container: Container) -> Amounts:
    """Return a container's requests; a limit replaces a missing request, as in API defaulting."""
    return amounts({**container.resources.limits, **container.resources.requests})


def at_once(pod: Pod, main: Iterable[Amounts], init: Iterable[Amounts]) -> Amounts:
    """Return the most that containers need at any moment of the pod's life, from the needs of each.

    Main containers and sidecars add up; each plain init container runs beside the sidecars started before it.
    """
    total: Amounts = {}
    for need in main:
        _add(total, need)
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container, need in zip(pod.spec.init_containers, init, strict=True):
        if container.restart_policy == "Always":
            _add(total, need)
            _add(sidecars, need)
            _raise(peak, sidecars)
        else:
            beside = dict(need)
            _add(beside, sidecars)
            _raise(peak, beside)
    _raise(total, peak)
    return total


def _add(total: Amounts, more: Amounts) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise(total: Amounts, more: Amounts) -> None:
    for name, value in more.items():
        total[name] = max(total.get(name, 0), value)


def pod_requests(pod: Pod) -> Amounts:
    """Return the most the pod needs at any moment of its life.

    Pod-level cpu and memory replace the sum of the containers; overhead is added last.
    """
    spec = pod.spec
    total = at_once(pod, map(container_requests, spec.containers), map(container_requests, spec.init_containers))
    if spec.resources is not None:
        level = amounts({**spec.resources.limits, **spec.resources.requests})
        total.update({name: value for name, value in level.items() if name in POD_LEVEL})
    if spec.overhead:
        _add(total, amounts(spec.overhead))
    return total


def limits_in_use(pod: Pod) -> Amounts:
    """Return the most the pod may use at any moment of its life; resources without a limit are absent.

    Raises: ValueError naming a malformed quantity.
    """
    spec, status = pod.spec, pod.status
    is_refused = has_infeasible_resize(pod)

    def most(desired: Mapping[str, str], actual: ResourceRequirements | None) -> Amounts:
        found = amounts(desired if actual is None else actual.limits)
        if not is_refused:
            _raise(found, amounts(desired))
        return found

    def limits(containers: Iterable[Container], statuses: Iterable[ContainerStatus]) -> Iterable[Amounts]:
        actual = {each.name: each.resources for each in statuses}
        return (most(each.resources.limits, actual.get(each.name)) for each in containers)

    main = limits(spec.containers, status.container_statuses)
    total = at_once(pod, main, limits(spec.init_containers, status.init_container_statuses))
    if spec.resources is not None:
        level = most(spec.resources.limits, status.resources)
        total.update({name: value for name, value in level.items() if name in POD_LEVEL})
    _add(total, {name: value for name, value in amounts(spec.overhead).items() if total.get(name)})
    return total


def qos_class(pod: Pod) -> str:
    """Return Guaranteed, Burstable or BestEffort (upstream `ComputePodQOS`)."""
    requests: Amounts = {}
    limits: Amounts = {}
    guaranteed = True
    sources = [c.resources for c in (*pod.spec.containers, *pod.spec.init_containers)]
    if pod.spec.resources is not None:
        sources = [pod.spec.resources]
    for source in sources:
        ask = amounts({**source.limits, **source.requests})
        cap = amounts(source.limits)
        _add(requests, {k: v for k, v in ask.items() if k in POD_LEVEL and v})
        _add(limits, {k: v for k, v in cap.items() if k in POD_LEVEL and v})
        if not {k for k, v in cap.items() if v} >= POD_LEVEL:
            guaranteed = False
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if guaranteed and requests == limits else "Burstable"


def as_in_use(pod: Pod) -> Pod:
    """Return the pod with requests for all it may hold: the largest of desired, allocated and actual, by container.

    Desired resources do not count if the node calls the resize infeasible. Returns the same pod when nothing
    differs from its spec. Source: upstream `PodRequests` with `UseStatusResources` (v1.36).
    """
    return _reported_pod(pod, lambda *sizes: _most(*(sizes[1:] if has_infeasible_resize(pod) else sizes)))


def has_infeasible_resize(pod: Pod) -> bool:
    """Whether the pod's node reports the pending resize as infeasible."""
    pending = next((c for c in pod.status.conditions if c.type == "PodResizePending"), None)
    return pending is not None and pending.reason == "Infeasible"


def as_held(pod: Pod) -> Pod:
    """Return the pod with requests for the resources that are allocated or still in use.

    Desired resources are ignored; where none are reported, the spec counts.
    """
    return _reported_pod(pod, lambda desired, allocated, actual: _most(allocated, actual))


def as_actual(pod: Pod) -> Pod:
    """Return the pod with its actual resources as requests; where the node has not reported them, the spec counts."""
    return _reported_pod(pod, lambda desired, allocated, actual: actual)


def as_allocated(pod: Pod) -> Pod:
    """Return the pod with the allocated resources as requests; where the node has not reported them, the spec
    counts.
    """
    return _reported_pod(pod, lambda desired, allocated, actual: allocated)


def _is_reported_otherwise(pod: Pod) -> bool:
    spec, status = pod.spec, pod.status
    for containers, statuses in (
        (spec.containers, status.container_statuses),
        (spec.init_containers, status.init_container_statuses),
    ):
        for container, reported in zip(containers, statuses, strict=False):
            if reported.resources is None:
                continue
            wanted = container.resources.requests
            if reported.name != container.name or reported.resources.requests != wanted:
                return True
            if reported.allocated_resources != wanted:
                return True
    level = spec.resources
    return (
        level is not None
        and status.resources is not None
        and not (status.resources.requests == status.allocated_resources == level.requests)
    )


_Choice = Callable[[dict[str, str], dict[str, str], dict[str, str]], dict[str, str]]


def _reported_pod(pod: Pod, choose: _Choice) -> Pod:
    """Return the pod with the requests that `choose` makes of desired, allocated and actual ones.

    The pod itself, when its node reports nothing that differs from its spec.
    """
    if not _is_reported_otherwise(pod):
        return pod

    def resize(containers: tuple[Container, ...], statuses: tuple[ContainerStatus, ...]) -> tuple[Container, ...]:
        by_name = {status.name: status for status in statuses}
        resized_containers = []
        for container in containers:
            status = by_name.get(container.name)
            if status is not None and status.resources is not None:
                wanted = container.resources.requests
                chosen = choose(wanted, status.allocated_resources, status.resources.requests)
                container = replace(container, resources=ResourceRequirements(chosen))
            resized_containers.append(container)
        return tuple(resized_containers)

    spec, status = pod.spec, pod.status
    level = spec.resources
    if level is not None and status.resources is not None:
        chosen = choose(level.requests, status.allocated_resources, status.resources.requests)
        level = ResourceRequirements(chosen)
    return replace(
        pod,
        spec=replace(
            spec,
            containers=resize(spec.containers, status.container_statuses),
            init_containers=resize(spec.init_containers, status.init_container_statuses),
            resources=level,
        ),
    )


def _most(*sizes: dict[str, str]) -> dict[str, str]:
    """Return the largest quantity of each resource."""
    most: dict[str, str] = {}
    for size in sizes:
        for name, text in size.items():
            if name not in most or amount(name, text) > amount(name, most[name]):
                most[name] = text
    return most
