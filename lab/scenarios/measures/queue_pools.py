"""Time that pods spend in each pool of the scheduling queue. Pure.

It is read from `sched.moved`, which a leading scheduler writes for each pool that a pod enters
(`--queue-moves`; scenarios have it on). When a scheduler ends, its open stays are closed. A pod in the
queues of two schedulers at the same time (`schedulers 2 elect=off`) counts in both. Pools are those of
scheduler_pending_pods: `backoff` has both back-off queues.

Source: scheduler-queue-and-cycles 2; upstream `pkg/scheduler/metrics` (scheduler_pending_pods).
"""

from collections.abc import Mapping
from typing import Final

from services.telemetry.eventlog import Line

POOLS: Final = ("active", "backoff", "unschedulable", "gated")
"""Pools, named by the labels of upstream's metric."""
_POOL_OF: Final = {"error_backoff": "backoff"}
_ENDS: Final = ("kill", "restart")


class QueuePools:
    """Seconds of each pod in each pool, by uid."""

    events: Final = ("sched.moved", "proc.start", "lease.lose", "fault.inject")

    def __init__(self) -> None:
        self.by_uid: dict[str, dict[str, float]] = {}
        self._open: dict[str, dict[str, tuple[str, int]]] = {}
        """By scheduler and uid: where the pod is, and since when."""

    def take(self, line: Line) -> None:
        """Process a line: a pod moves, or a scheduler starts or ends."""
        match line.ev:
            case "sched.moved" if line.obj is not None:
                self._move(line.comp, line.obj["uid"], str(line.data["to"]), line.mono_ns)
            case "proc.start" | "lease.lose":
                self._close(line.comp, line.mono_ns)
            case "fault.inject" if line.data.get("what") in _ENDS:
                self._close(line.data["target"], line.mono_ns)

    def _move(self, scheduler: str, uid: str, pool: str, now_ns: int) -> None:
        pods = self._open.setdefault(scheduler, {})
        if (stay := pods.pop(uid, None)) is not None:
            self._add(uid, *stay, now_ns)
        if pool:
            pods[uid] = _POOL_OF.get(pool, pool), now_ns

    def _add(self, uid: str, pool: str, since_ns: int, now_ns: int) -> None:
        seconds = self.by_uid.setdefault(uid, {})
        seconds[pool] = seconds.get(pool, 0.0) + (now_ns - since_ns) / 1e9

    def _close(self, scheduler: str, now_ns: int) -> None:
        for uid, stay in self._open.pop(scheduler, {}).items():
            self._add(uid, *stay, now_ns)

    def end(self, now_s: float) -> None:
        """Close all open stays at `now_s` of the log's clock."""
        for scheduler in list(self._open):
            self._close(scheduler, int(now_s * 1e9))

    def of(self, uid: str) -> Mapping[str, float]:
        """Return the pod's seconds in each pool."""
        return dict.fromkeys(POOLS, 0.0) | self.by_uid.get(uid, {})

    def measures(self) -> dict[str, float | None]:
        """Return the seconds summed over all pods, by name; {} if no pod was queued."""
        if not self.by_uid:
            return {}
        totals = dict.fromkeys(POOLS, 0.0)
        for seconds in self.by_uid.values():
            for pool, held_s in seconds.items():
                if pool in totals:
                    totals[pool] += held_s
        return {f"queue_{pool}_s": held_s for pool, held_s in totals.items()}
