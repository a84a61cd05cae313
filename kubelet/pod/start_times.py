"""The durations of pods' starts and ends on a node, in metrics under upstream's names. Pure.

`kubelet_pod_start_duration_seconds` is from admission to the first container; the SLI from the pod's
creation until the watch shows all its containers started, less pulls and init containers;
`kubelet_pod_worker_duration_seconds` has the first sync of a pod and its end. Source: kubelet 10; upstream
`pkg/kubelet/util/pod_startup_latency_tracker.go`, `pkg/kubelet/metrics`.
"""

from typing import Final

from kubelet.effects import Outbox
from kubelet.pod.container import INIT, Container
from kubelet.pod.context import PodContext, WallTimes
from kubelet.pod.states import ContainerState
from kubelet.view import KubeletPod, WorkerKey
from services.api.times import parse_time
from services.telemetry.metrics import DEFAULT_BOUNDS

START: Final = "kubelet_pod_start_duration_seconds"
SLI: Final = "kubelet_pod_start_sli_duration_seconds"
WORKER: Final = "kubelet_pod_worker_duration_seconds"
_MINUTES: Final = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0)
BOUNDS: Final = (*_MINUTES, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0)
"""Buckets of both start durations, as upstream's."""


class StartTimes:
    """The start and end times of one node's pods.

    Invariant: a pod in `_unseen` was started here, and the API server does not show it started yet.
    """

    def __init__(self, out: Outbox, times: WallTimes) -> None:
        self._out, self._times = out, times
        self._admitted_s: dict[WorkerKey, float] = {}
        self._unseen: dict[WorkerKey, None] = {}
        self._ending_s: dict[WorkerKey, float] = {}

    def on_admitted(self, key: WorkerKey, now: float) -> None:
        """Note that the pod's worker begins."""
        self._admitted_s[key] = now
        self._unseen[key] = None

    def on_started(self, key: WorkerKey, now: float) -> None:
        """Note that the pod's first container runs."""
        took_s = now - self._admitted_s.pop(key, now)
        self._out.observe(START, took_s, bounds=BOUNDS)
        self._out.observe(WORKER, took_s, "create", bounds=DEFAULT_BOUNDS)

    def ending(self, key: WorkerKey, now: float) -> None:
        """Note that the pod is being ended; the first call counts."""
        self._ending_s.setdefault(key, now)

    def on_ended(self, key: WorkerKey, now: float) -> None:
        """Note that nothing of the pod runs any more."""
        self._out.observe(WORKER, now - self._ending_s.pop(key, now), "kill", bounds=DEFAULT_BOUNDS)

    def observe_pod(self, worker: PodContext, pod: KubeletPod, now: float) -> None:
        """Take the pod as the API server shows it."""
        if worker.key not in self._unseen:
            return
        shown = pod.status.container_statuses
        if len(shown) < len(pod.spec.containers) or not all(each.state.running for each in shown):
            return
        del self._unseen[worker.key]
        created_s = parse_time(pod.metadata.creation_timestamp) - self._times.offset_s
        self._out.observe(SLI, max(0.0, now - created_s - _excluded_s(worker.containers)), bounds=BOUNDS)

    def forget(self, key: WorkerKey) -> None:
        """Forget a pod that is gone."""
        self._admitted_s.pop(key, None)
        self._unseen.pop(key, None)
        self._ending_s.pop(key, None)


def _excluded_s(containers: list[Container]) -> float:
    """Return how long images were pulled, from the first to the last, and init containers ran."""
    pulls = [(c.pull.first_s, c.pull.done_s) for c in containers if c.pull.first_s is not None and c.pull.is_done]
    inits = sum(c.finished_s - c.started_s for c in containers if c.kind == INIT and c.state == ContainerState.EXITED)
    if not pulls:
        return inits
    return inits + max(done_s for _, done_s in pulls) - min(first_s for first_s, _ in pulls)
