"""What a pod costs, parsed once for each distinct template: real requests and those scoring assumes.

Scoring pretends that a container without a request still needs 100 m CPU and 200 MiB, or best-effort
pods would all pile up on one node (scheduler-queue-and-cycles 6). An explicit `0` stays 0.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from services.api.kinds.pod import Container, Pod, ResourceRequirements
from services.api.podresources import Amounts, as_in_use, pod_requests

NATIVE: Final = ("cpu", "memory", "ephemeral-storage")
DEFAULT_CPU: Final = "100m"
DEFAULT_MEMORY: Final = str(200 * 2**20)
TEMPLATES_MAX: Final = 8192
AMOUNT_MAX: Final = 2**53 - 1
"""Above this a column (float64) would not hold the integer exactly."""


@dataclass(frozen=True, slots=True, eq=False)
class PodRequests:
    """Amounts: milli for cpu, units for all else. Compared by identity: equal templates share one.

    `wanted`: the requests above zero, in a fixed order. `nonzero_*` is what a bound pod counts for in
    scoring, `scoring_*` what an incoming one asks for: upstream ignores pod-level resources there (12.6).
    `unactuated`: what of it a pod on a node has asked for and not been given, if that is tracked.
    """

    amounts: Amounts
    wanted: tuple[tuple[str, int], ...]
    nonzero_cpu: int
    nonzero_memory: int
    scoring_cpu: int
    scoring_memory: int
    is_malformed: bool = False
    unactuated: Amounts = field(default_factory=dict)


_templates: OrderedDict[Hashable, PodRequests] = OrderedDict()


def _shape(resources: ResourceRequirements) -> Hashable:
    return (tuple(resources.requests.items()), tuple(resources.limits.items()))


def _signature(pod: Pod) -> Hashable:
    spec = pod.spec
    return (
        tuple(_shape(c.resources) for c in spec.containers),
        tuple((c.restart_policy, _shape(c.resources)) for c in spec.init_containers),
        tuple(spec.overhead.items()),
        None if spec.resources is None else _shape(spec.resources),
    )


def requests_of(pod: Pod) -> PodRequests:
    """Return the pod's requests, shared between pods of the same template.

    A pod on a node counts with all it may hold while it is resized (KEP-1287).
    """
    if pod.status.container_statuses and pod.spec.node_name:
        with contextlib.suppress(ValueError):  # a malformed quantity shows below, in the spec
            pod = as_in_use(pod)
    return as_specified(pod)


def as_specified(pod: Pod) -> PodRequests:
    """Return what the pod's spec asks for, shared in the same way, whatever its status says of it."""
    signature = _signature(pod)
    found = _templates.get(signature)
    if found is None:
        found = _parse(pod)
        _templates[signature] = found
        if len(_templates) > TEMPLATES_MAX:
            _templates.popitem(last=False)
    return found


def _parse(pod: Pod) -> PodRequests:
    try:
        real = pod_requests(pod)
        assumed = pod_requests(_with_defaults(pod))
        incoming = pod_requests(replace(_with_defaults(pod), spec=replace(_with_defaults(pod).spec, resources=None)))
    except ValueError:
        # The API server refuses such quantities; one that came through must not stop all other pods.
        return PodRequests({}, (), 0, 0, 0, 0, is_malformed=True)
    real = {name: min(value, AMOUNT_MAX) for name, value in real.items()}
    return PodRequests(
        amounts=real,
        wanted=tuple((name, real[name]) for name in sorted(real, key=native_first) if real[name] > 0),
        nonzero_cpu=assumed.get("cpu", 0),
        nonzero_memory=min(assumed.get("memory", 0), AMOUNT_MAX),
        scoring_cpu=incoming.get("cpu", 0),
        scoring_memory=min(incoming.get("memory", 0), AMOUNT_MAX),
    )


def most(one: PodRequests, other: PodRequests) -> PodRequests:
    """Return what covers both, resource by resource; one of the two when that covers the other."""
    names = list(dict.fromkeys((*one.amounts, *other.amounts)))
    amounts = {name: max(one.amounts.get(name, 0), other.amounts.get(name, 0)) for name in names}
    if amounts == one.amounts:
        return one
    return dataclasses.replace(
        other,
        amounts=amounts,
        wanted=tuple((name, amounts[name]) for name in sorted(names, key=native_first) if amounts[name] > 0),
        nonzero_cpu=max(one.nonzero_cpu, other.nonzero_cpu),
        nonzero_memory=max(one.nonzero_memory, other.nonzero_memory),
    )


def native_first(name: str) -> tuple[int, str]:
    """Return what resources are sorted by: the native ones in their order, then all others by name."""
    return (NATIVE.index(name) if name in NATIVE else len(NATIVE), name)


def _with_defaults(pod: Pod) -> Pod:
    def filled(containers: tuple[Container, ...]) -> tuple[Container, ...]:
        return tuple(replace(c, resources=_default(c.resources)) for c in containers)

    spec = pod.spec
    return replace(
        pod,
        spec=replace(spec, containers=filled(spec.containers), init_containers=filled(spec.init_containers)),
    )


def _default(resources: ResourceRequirements) -> ResourceRequirements:
    asked = {**resources.limits, **resources.requests}
    return replace(resources, requests={"cpu": DEFAULT_CPU, "memory": DEFAULT_MEMORY, **asked})
