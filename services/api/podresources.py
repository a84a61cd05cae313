"""What a pod asks for: requests over containers, init containers, sidecars, pod level and overhead.

Source: KEP-753 (sidecars), KEP-2837 (pod-level resources), upstream `PodRequests`.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.api.kinds.pod import Container, Pod
from services.api.quantity import amount

Amounts = dict[str, int]
"""Resource name to integer: milli for cpu, units for all else."""

POD_LEVEL = frozenset({"cpu", "memory"})


def amounts(quantities: Mapping[str, str]) -> Amounts:
    """Return parsed quantities. Raises: ValueError naming a malformed one."""
    return {name: amount(name, text) for name, text in quantities.items()}


def container_requests(container: Container) -> Amounts:
    """Return a container's requests; a limit without a request stands for it, as API defaulting does."""
    return amounts({**container.resources.limits, **container.resources.requests})


def _add(total: Amounts, more: Amounts) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def pod_requests(pod: Pod) -> Amounts:
    """Return the most the pod needs at any moment of its life.

    Main containers and sidecars add up; each plain init container runs beside the sidecars started
    before it; pod-level cpu and memory replace the sum; overhead is added last.
    """
    total: Amounts = {}
    for container in pod.spec.containers:
        _add(total, container_requests(container))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in pod.spec.init_containers:
        need = container_requests(container)
        if container.restart_policy == "Always":
            _add(total, need)
            _add(sidecars, need)
            need = dict(sidecars)
        else:
            need = dict(need)
            _add(need, sidecars)
        for name, value in need.items():
            peak[name] = max(peak.get(name, 0), value)
    for name, value in peak.items():
        total[name] = max(total.get(name, 0), value)
    if pod.spec.resources is not None:
        level = amounts({**pod.spec.resources.limits, **pod.spec.resources.requests})
        total.update({name: value for name, value in level.items() if name in POD_LEVEL})
    if pod.spec.overhead:
        _add(total, amounts(pod.spec.overhead))
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
