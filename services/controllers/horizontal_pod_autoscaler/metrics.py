"""What pods use, as a metrics server would report it: the emulated usage, sampled every 15 s. Pure.

How much an emulated container uses is written in its pod's annotations and counted from its start, which its status
has: no kubelet reports it (decision 0024). A pod has metrics once all its containers have run for a whole interval.
What a workload's `keplab.dev/load` says is divided evenly among its ready pods and added to the first container of
each; its ages are counted from the workload's creation.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.api.kinds.pod import Container, Pod
from services.api.meta import ObjectMeta
from services.api.usage import LOAD_ANNOTATION, LOAD_RESOURCES, Curves, parse_curves, text_for, value_at
from services.controllers.shared_pods import is_ready, seconds_of

RESOLUTION_S = 15
"""How often metrics are taken, and over how long (metrics-server `--metric-resolution`)."""


class Sample(NamedTuple):
    """What a pod or a container used (cpu in thousandths, memory in bytes) at that time, in epoch seconds."""

    value: int
    at_s: float


def measured(
    pods: Sequence[Pod], resource: str, container: str, target: ObjectMeta, wall_s: float
) -> dict[str, Sample]:
    """Return what pods use of a resource by name; `container` "": all containers of each. `target`: the workload."""
    at_s = float(int(wall_s) // RESOLUTION_S * RESOLUTION_S)
    share = _share(pods, resource, target, at_s)
    found: dict[str, Sample] = {}
    for pod in pods:
        starts = _starts(pod)
        counted = containers_of(pod)
        if not counted or any(starts.get(each.name, at_s) > at_s - RESOLUTION_S for each in counted):
            continue
        chosen = [each for each in counted if container in ("", each.name)]
        if not chosen:
            continue
        value = sum(_used(pod, each.name, resource, at_s - starts[each.name]) for each in chosen)
        if is_ready(pod) and chosen[0] is counted[0]:
            value += share
        found[pod.metadata.name] = Sample(value, at_s)
    return found


def containers_of(pod: Pod) -> list[Container]:
    """Return the containers that run as long as the pod does: its own, and sidecars."""
    sidecars = [each for each in pod.spec.init_containers if each.restart_policy == "Always"]
    return [*pod.spec.containers, *sidecars]


def _starts(pod: Pod) -> dict[str, float]:
    every = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    return {each.name: seconds_of(each.state.running.started_at) for each in every if each.state.running is not None}


def _used(pod: Pod, container: str, resource: str, age_s: float) -> int:
    return value_at(_curves(pod.metadata.annotations, container).get(resource, ()), age_s)


def _curves(annotations: Mapping[str, str], container: str) -> Curves:
    try:
        return parse_curves(text_for(annotations, container))
    except ValueError:
        return {}


def _share(pods: Sequence[Pod], resource: str, target: ObjectMeta, at_s: float) -> int:
    """Return the part of the workload's load that each of its ready pods has."""
    text = target.annotations.get(LOAD_ANNOTATION, "")
    ready = sum(is_ready(pod) and pod.metadata.deletion_timestamp is None for pod in pods)
    if not text or not ready:
        return 0
    try:
        curves = parse_curves(text, LOAD_RESOURCES)
    except ValueError:
        return 0
    return value_at(curves.get(resource, ()), at_s - seconds_of(target.creation_timestamp)) // ready
