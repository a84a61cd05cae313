"""The figures of a workload, and the breakdown of the scheduler's time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict

import msgspec

from lab.scenarios.measures import quantile

CYCLE: Final = "cycle"
"""Name of the time that no plugin and no other part spent: the runner, remembered templates, the choice of a node."""


class Result:
    """The figures of one workload."""

    def document(self) -> dict[str, Any]:
        """Return the JSON document that `keplab bench -o json` prints."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


@dataclass
class SchedulerBench(Result):
    """Figures of one workload in one form. CPU times are microseconds per measured pod.

    `p50_ms`, `p99_ms`: in the form `algorithm`, from pop to assume; for pods that arrive at a rate, from
    their due time, in CPU time, as if they had a core to themselves. In the form `mesh`, from created to
    bound. `resize_attempts`: cycles of deferred resizes, known only for `algorithm`. `cpu_us_per_pod`: all
    processes but the load generator. `by_plugin` and `by_extension_point` count a plugin's own time, without
    plugins that it calls; `by_part` is the rest. `units_per_pod`: the same CPU time in units (`units.py`).
    `node_evaluations_per_core_s`: nodes on which filters judged a pod, divided by the CPU seconds of the
    measured pods; known only for `algorithm`. `claims`: ResourceClaims that the measured pods brought.
    """

    workload: str
    form: str
    nodes: int
    pods: int
    init_pods: int
    switches: tuple[str, ...]
    pods_per_s: float
    cpu_us_per_pod: float
    p50_ms: float
    p99_ms: float
    rss_mib: dict[str, float]
    unschedulable_attempts: int = 0
    evicted: int = 0
    resize_attempts: int = 0
    claims: int = 0
    units_per_pod: float = 0.0
    unit_us: float = 0.0
    node_evaluations_per_core_s: float = 0.0
    by_plugin: dict[str, float] = field(default_factory=dict)
    by_extension_point: dict[str, float] = field(default_factory=dict)
    by_part: dict[str, float] = field(default_factory=dict)
    cpu_us_per_pod_by_process: dict[str, float] = field(default_factory=dict)


class Breakdown(TypedDict):
    """Breakdown of the scheduler's time, as in `SchedulerBench`: microseconds per pod, the largest first."""

    by_plugin: dict[str, float]
    by_extension_point: dict[str, float]
    by_part: dict[str, float]


def breakdown_of(spent_s: Mapping[tuple[str, str], float], took_s: float, pods: int) -> Breakdown:
    """Convert clocked seconds to a breakdown per pod. Keys: `(plugin, extension point)`, and `(part, "")` for
    all else.
    """
    plugins: dict[str, float] = {}
    points: dict[str, float] = {}
    parts: dict[str, float] = {CYCLE: took_s - sum(spent_s.values())}
    for (owner, point), seconds in spent_s.items():
        if point:
            plugins[owner] = plugins.get(owner, 0.0) + seconds
            points[point] = points.get(point, 0.0) + seconds
        else:
            parts[owner] = parts.get(owner, 0.0) + seconds

    def per_pod(seconds: dict[str, float]) -> dict[str, float]:
        ranked = sorted(seconds.items(), key=lambda item: -item[1])
        return {name: round(1e6 * spent / pods, 2) for name, spent in ranked}

    return Breakdown(by_plugin=per_pod(plugins), by_extension_point=per_pod(points), by_part=per_pod(parts))


def milliseconds(seconds: Sequence[float], q: float) -> float:
    """Return a quantile of durations in milliseconds; 0 if there are none."""
    return round(1000 * (quantile(list(seconds), q) or 0.0), 3)
