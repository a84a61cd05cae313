"""Rates of processes and links per second, from the counters that each process serves. Pure.

A link connects a process to the API server. Its latencies are those of the answers of the last ten seconds,
interpolated within their buckets.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from services.runtime.components import component_of

WINDOW_S: Final = 10.0
SERVERS: Final = ("apiserver", "etcd")
_BUCKET: Final = 'keplab_rpc_duration_seconds_bucket{le="'
_SENT, _RECEIVED = '{direction="sent"}', '{direction="received"}'
_PENDING: Final = 'scheduler_pending_pods{queue="'


class Sample(NamedTuple):
    """Counters of one process at one time, by their Prometheus names (from `/rates` of each process)."""

    at_s: float
    values: Mapping[str, float]


def read_leads(text: str) -> bool | None:
    """Return whether a process leads, from its `/metrics`; None if it takes part in no election."""
    for line in text.splitlines():
        if line.startswith("leader_election_master_status"):
            return line.rpartition(" ")[2] == "1.0"
    return None


class Rates:
    """Samples of the last ten seconds of every process."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[Sample]] = {}

    def add(self, process: str, sample: Sample) -> None:
        """Add a sample of a process; if the counters went back, the process restarted and older samples are dropped."""
        kept = self._samples.setdefault(process, deque())
        if kept and _went_back(kept[-1].values, sample.values):
            kept.clear()
        kept.append(sample)
        while len(kept) > 2 and sample.at_s - kept[0].at_s > WINDOW_S:
            kept.popleft()

    def forget(self, known: Sequence[str]) -> None:
        """Forget all processes except the `known` ones."""
        for name in [name for name in self._samples if name not in known]:
            del self._samples[name]

    def newest(self, process: str) -> Mapping[str, float]:
        """Return the newest counters of a process."""
        kept = self._samples.get(process)
        return kept[-1].values if kept else {}

    def process(self, name: str) -> dict[str, Any]:
        """Return CPU (cores) and memory (bytes) of a process, and the nodes of a kubelet; None for missing values."""
        kept = self._samples.get(name)
        values = kept[-1].values if kept else {}
        return {
            "cpu": _per_s(kept, "process_cpu_seconds_total") if kept else None,
            "rss_bytes": values.get("process_resident_memory_bytes"),
            "nodes": values.get("keplab_kubelet_nodes"),
            "nodes_ready": values.get("keplab_kubelet_nodes_ready"),
        }

    def link(self, name: str, to: str) -> dict[str, Any] | None:
        """Return the rates of a process's link; None if it has none."""
        kept = self._samples.get(name)
        if not kept or component_of(name) in SERVERS or f"keplab_rpc_messages_total{_SENT}" not in kept[-1].values:
            return None
        sent, received = (_per_s(kept, f"keplab_rpc_messages_total{way}") or 0.0 for way in (_SENT, _RECEIVED))
        up, down = (_per_s(kept, f"keplab_rpc_bytes_total{way}") or 0.0 for way in (_SENT, _RECEIVED))
        errors = sum(
            _per_s(kept, name) or 0.0 for name in kept[-1].values if name.startswith("keplab_rpc_errors_total{")
        )
        buckets = _buckets(kept)
        return {
            "from": name,
            "to": to,
            "messages_s": round(sent + received, 2),
            "sent_s": round(sent, 2),
            "received_s": round(received, 2),
            "bytes_s": round(up + down, 1),
            "p50_ms": quantile_ms(buckets, 0.5),
            "p99_ms": quantile_ms(buckets, 0.99),
            "errors_s": round(errors, 2),
        }

    def pools(self) -> dict[str, int] | None:
        """Return the number of waiting pods by pool, from all schedulers; None if none of them reports it."""
        counts: dict[str, int] = {}
        for name, kept in self._samples.items():
            if component_of(name) != "scheduler":
                continue
            for metric, value in kept[-1].values.items():
                if metric.startswith(_PENDING):
                    pool = metric[len(_PENDING) :].partition('"')[0]
                    counts[pool] = max(counts.get(pool, 0), int(value))
        return counts or None


def _went_back(before: Mapping[str, float], after: Mapping[str, float]) -> bool:
    name = "process_cpu_seconds_total"
    return after.get(name, 0.0) < before.get(name, 0.0)


def _per_s(kept: Sequence[Sample], name: str) -> float | None:
    first, last = kept[0], kept[-1]
    if last.at_s <= first.at_s or name not in last.values:
        return None
    return max(0.0, last.values[name] - first.values.get(name, 0.0)) / (last.at_s - first.at_s)


def _buckets(kept: Sequence[Sample]) -> list[tuple[float, float]]:
    """Return upper bound and how many answers of the window were not above it, in order."""
    first, last = kept[0].values, kept[-1].values
    buckets = []
    for name, value in last.items():
        if name.startswith(_BUCKET):
            text = name[len(_BUCKET) :].partition('"')[0]
            buckets.append((math.inf if text == "+Inf" else float(text), value - first.get(name, 0.0)))
    return sorted(buckets)


def quantile_ms(buckets: Sequence[tuple[float, float]], share: float) -> float | None:
    """Return the latency in ms that a share of the answers did not exceed; None if there were none."""
    total = buckets[-1][1] if buckets else 0.0
    if total <= 0:
        return None
    wanted, below_s, below = share * total, 0.0, 0.0
    for bound_s, count in buckets:
        if count >= wanted:
            if math.isinf(bound_s):
                return round(1000 * below_s, 3)
            return round(1000 * (below_s + (bound_s - below_s) * (wanted - below) / (count - below)), 3)
        below_s, below = bound_s, count
    return round(1000 * below_s, 3)
