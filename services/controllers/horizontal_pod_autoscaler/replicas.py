"""Number of replicas that a metric requires, given ready, unready, and unmeasured pods. Pure.

Source: upstream `pkg/controller/podautoscaler/replica_calculator.go`,
`pkg/controller/podautoscaler/metrics/utilization.go`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from services.api.kinds.pod import Pod
from services.api.meta import find_condition
from services.api.quantity import milli
from services.controllers.horizontal_pod_autoscaler.metrics import MetricsError, Sample
from services.controllers.shared_pods import is_ready, seconds_of

CPU_INITIALIZATION_S = 300.0
"""Seconds after a pod's start in which its cpu counts only while it is ready, over a whole window (upstream's flag)."""
REPLICAS_MAX = 2**31 - 1
INITIAL_READINESS_S = 30.0
"""Seconds after a pod's start; a pod that became unready within them counts as never ready (upstream's flag)."""


class Tolerance(NamedTuple):
    """Allowed distance of the usage ratio from 1 without scaling."""

    up: float = 0.1
    down: float = 0.1

    def covers(self, ratio: float) -> bool:
        """Whether the ratio causes no scaling."""
        return 1.0 - self.down <= ratio <= 1.0 + self.up


class Proposal(NamedTuple):
    """Replicas that a metric requires. `average`: the value per pod, or the value itself, in thousandths.

    `percent`: the value in percent of the pods' requests; None for other targets.
    """

    replicas: int
    average: int
    percent: int | None = None


@dataclass
class Groups:
    """Names of a target's pods, grouped by the use of their metrics; `ready` is only a count."""

    ready: int = 0
    unready: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    ignored: set[str] = field(default_factory=set)


def group_pods(pods: Sequence[Pod], samples: Mapping[str, Sample], resource: str, wall_s: float) -> Groups:
    """Return the pods in groups: terminating or failed ones are ignored, pending ones unready."""
    groups = Groups()
    for pod in pods:
        name = pod.metadata.name
        if pod.metadata.deletion_timestamp is not None or pod.status.phase == "Failed":
            groups.ignored.add(name)
        elif pod.status.phase == "Pending":
            groups.unready.add(name)
        elif (sample := samples.get(name)) is None:
            groups.missing.add(name)
        elif resource == "cpu" and _is_starting(pod, sample, wall_s):
            groups.unready.add(name)
        else:
            groups.ready += 1
    return groups


def _is_starting(pod: Pod, sample: Sample, wall_s: float) -> bool:
    ready = find_condition(pod.status.conditions, "Ready")
    if ready is None or pod.status.start_time is None:
        return True
    started_s, since_s = seconds_of(pod.status.start_time), seconds_of(ready.last_transition_time)
    if started_s + CPU_INITIALIZATION_S > wall_s:
        return ready.status == "False" or sample.at_s < since_s + sample.window_s
    return ready.status == "False" and started_s + INITIAL_READINESS_S > since_s


def requests_by_pod(pods: Sequence[Pod], resource: str, container: str) -> dict[str, int]:
    """Return the pods' requests, in thousandths by pod name; pod-level requests replace the containers' (KEP-2837).

    Raises: MetricsError naming the pod or container without a request.
    """
    requests: dict[str, int] = {}
    for pod in pods:
        level = pod.spec.resources.requests if pod.spec.resources is not None else {}
        sidecars = [each for each in pod.spec.init_containers if each.restart_policy == "Always"]
        counted = [each for each in (*pod.spec.containers, *sidecars) if container in ("", each.name)]
        texts = [each.resources.requests.get(resource) for each in counted]
        if level and not container:
            quantities = [level[resource]] if resource in level else [text for text in texts if text is not None]
            if not quantities:
                raise MetricsError(f"missing pod-level request for {resource} in Pod {pod.metadata.name}")
            requests[pod.metadata.name] = sum(map(milli, quantities))
            continue
        for counted_container, text in zip(counted, texts, strict=True):
            if text is None:
                where = f"container {counted_container.name} of Pod {pod.metadata.name}"
                raise MetricsError(f"missing request for {resource} in {where}")
        requests[pod.metadata.name] = sum(milli(text) for text in texts if text is not None)
    return requests


def by_utilization(
    pods: Sequence[Pod],
    samples: Mapping[str, Sample],
    requests: Mapping[str, int],
    groups: Groups,
    current: int,
    target_percent: int,
    tolerance: Tolerance,
) -> Proposal:
    """Return the replicas for a target in percent of the requests. Raises: MetricsError if there are no metrics."""

    def ratio_of(values: Mapping[str, int]) -> tuple[float, int, int]:
        counted = [name for name in values if name in requests]
        asked = sum(requests[name] for name in counted)
        if not asked:
            raise MetricsError("no metrics returned matched known pods")
        total = sum(values[name] for name in counted)
        percent = total * 100 // asked
        return percent / target_percent, percent, total // len(counted)

    full = max(100, target_percent)
    values = _values_by_pod(samples, groups)
    ratio, percent, average = ratio_of(values)
    replicas = _replicas(
        values,
        groups,
        ratio,
        current,
        tolerance,
        lambda name: requests.get(name, 0) * full // 100,
        lambda rebuilt: ratio_of(rebuilt)[0],
    )
    return Proposal(replicas, average, percent)


def by_average(
    samples: Mapping[str, Sample], groups: Groups, current: int, target: int, tolerance: Tolerance
) -> Proposal:
    """Return the replicas for an average-value target. Raises: MetricsError if there are no metrics."""
    values = _values_by_pod(samples, groups)
    average = sum(values.values()) // len(values)

    def ratio_of(rebuilt: Mapping[str, int]) -> float:
        return (sum(rebuilt.values()) // len(rebuilt)) / target

    replicas = _replicas(values, groups, average / target, current, tolerance, lambda name: target, ratio_of)
    return Proposal(replicas, average)


def by_value(pods: Sequence[Pod], value: int, current: int, target: int, tolerance: Tolerance) -> Proposal:
    """Return the replicas for a target of the value itself, scaled by the number of ready pods.

    From zero replicas only the ratio counts. Raises: MetricsError without pods.
    """
    ratio = value / target
    if current == 0:
        return Proposal(math.ceil(ratio), value)
    if tolerance.covers(ratio):
        return Proposal(current, value)
    if not pods:
        raise MetricsError(
            "unable to calculate ready pods: no pods returned by selector while calculating replica count"
        )
    ready = sum(pod.status.phase == "Running" and is_ready(pod) for pod in pods)
    return Proposal(min(math.ceil(ratio * ready), REPLICAS_MAX), value)


def by_value_per_pod(value: int, reported: int, target: int, tolerance: Tolerance) -> Proposal:
    """Return the replicas for a target value per pod; `reported`: the replicas in the workload's status."""
    if reported and tolerance.covers(value / (target * reported)):
        return Proposal(reported, math.ceil(value / reported))
    return Proposal(min(math.ceil(value / target), REPLICAS_MAX), math.ceil(value / reported) if reported else value)


def _values_by_pod(samples: Mapping[str, Sample], groups: Groups) -> dict[str, int]:
    left_out = groups.ignored | groups.unready
    values = {name: sample.value for name, sample in samples.items() if name not in left_out}
    if not values:
        raise MetricsError("did not receive metrics for targeted pods (pods might be unready)")
    return values


def _replicas(
    values: Mapping[str, int],
    groups: Groups,
    ratio: float,
    current: int,
    tolerance: Tolerance,
    full: Callable[[str], int],
    ratio_of: Callable[[Mapping[str, int]], float],
) -> int:
    """Return the replicas, with pods that are not measured counted against any change.

    When fewer would do, a missing pod is taken to use `full`, when more are wanted, missing and unready ones nothing.
    """
    counts_unready = bool(groups.unready) and ratio > 1.0
    if not counts_unready and not groups.missing:
        return current if tolerance.covers(ratio) else math.ceil(ratio * groups.ready)
    rebuilt = dict(values)
    for name in sorted(groups.missing):
        if ratio != 1.0:
            rebuilt[name] = full(name) if ratio < 1.0 else 0
    if counts_unready:
        rebuilt |= dict.fromkeys(sorted(groups.unready), 0)
    again = ratio_of(rebuilt)
    if tolerance.covers(again) or (ratio < 1.0 < again) or (again < 1.0 < ratio):
        return current
    wanted = math.ceil(again * len(rebuilt))
    if (again < 1.0 and wanted > current) or (again > 1.0 and wanted < current):
        return current
    return wanted
