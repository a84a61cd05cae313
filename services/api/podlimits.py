"""What a pod may use at most: limits over containers, init containers, sidecars, pod level and overhead.

A pod that is being resized counts with the larger of what it desires and what it has. Source: KEP-1287 "Notes" on
ResourceQuota, upstream `PodLimits` with `UseStatusResources` (v1.36).
"""

from __future__ import annotations

from collections.abc import Mapping

from services.api.kinds.pod import Container, ContainerStatus, Pod
from services.api.podresources import POD_LEVEL, Amounts, amounts, has_infeasible_resize


def limits_in_use(pod: Pod) -> Amounts:
    """Return the most the pod may use at any moment of its life; what has no limit is absent.

    Raises: ValueError naming a malformed quantity.
    """
    spec, status = pod.spec, pod.status
    is_refused = has_infeasible_resize(pod)
    total: Amounts = {}
    for container in spec.containers:
        _add(total, _container(container, _named(status.container_statuses, container.name), is_refused))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.init_containers:
        most = _container(container, _named(status.init_container_statuses, container.name), is_refused)
        if container.restart_policy == "Always":
            _add(total, most)
            _add(sidecars, most)
            most = dict(sidecars)
        else:
            _add(most, sidecars)
        _raise(peak, most)
    _raise(total, peak)
    if spec.resources is not None:
        level = amounts(spec.resources.limits)
        if status.resources is not None:
            level = _in_use(level, amounts(status.resources.limits), is_refused)
        total.update({name: value for name, value in level.items() if name in POD_LEVEL})
    for name, value in amounts(spec.overhead).items():
        if total.get(name):
            total[name] += value
    return total


def _container(container: Container, status: ContainerStatus | None, is_refused: bool) -> Amounts:
    wanted = amounts(container.resources.limits)
    if status is None or status.resources is None:
        return wanted
    return _in_use(wanted, amounts(status.resources.limits), is_refused)


def _in_use(wanted: Amounts, actual: Amounts, is_refused: bool) -> Amounts:
    found = dict(actual)
    if not is_refused:
        _raise(found, wanted)
    return found


def _named(statuses: tuple[ContainerStatus, ...], name: str) -> ContainerStatus | None:
    return next((status for status in statuses if status.name == name), None)


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise(total: Amounts, more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = max(total.get(name, 0), value)
