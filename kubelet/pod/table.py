"""The machines of one node's pods: held, driven, and forgotten once nothing of them is left. Pure.

`perform` takes the effects of a pod: an effect for a manager of the node goes to the handler that this
manager has registered (`on`), every other effect to the shell. Source: kubelet 3.1, 3.2, 6; guarantees N1
to N4.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from kubelet.effects import Effect, Outbox, PodRejected, Save, SetTimer, SpanStage
from kubelet.pod.pod import REMOVED_GRACE_S, Pod
from kubelet.pod.start_times import StartTimes
from kubelet.pod.states import PodState
from kubelet.runtime.records import PodRecord, lines_of
from kubelet.status.versions import StatusVersions
from kubelet.view import WorkerKey
from services.api.meta import Key

E = TypeVar("E")
_SHOWN = (PodState.RUNNING, PodState.TERMINATED)


class PodTable:
    """The machines of one node's pods. `gone`: pods whose API object is gone.

    Invariant: among pods with the same name all but one are terminated or held.
    """

    def __init__(self, node: str, statuses: StatusVersions, start_times: StartTimes, out: Outbox) -> None:
        self.pods: dict[WorkerKey, Pod] = {}
        self.gone: dict[WorkerKey, None] = {}
        self.start_times = start_times
        self._node, self._statuses, self._out = node, statuses, out
        self._handlers: dict[type, Callable[[Pod, Any, float], None]] = {
            SpanStage: lambda pod, reached, now: out.span_stage(reached.key, reached.stage, reached.reason),
            PodRejected: lambda pod, effect, now: self.report_rejection(pod, effect.reason, effect.message, now),
        }
        self.on_forget: Callable[[WorkerKey], None] = lambda key: None
        """Called when a pod is held no more."""
        self._held: dict[WorkerKey, WorkerKey] = {}
        self._recorded: dict[WorkerKey, None] = {}
        """Pods of which something is on disk."""
        self._timers: dict[WorkerKey, float] = {}
        self._names: dict[Key, int] = {}

    def on(self, effect: type[E], handler: Callable[[Pod, E, float], None]) -> None:
        """Register the handler of an effect; the shell never sees that effect."""
        self._handlers[effect] = handler

    def add(self, pod: Pod, *, is_recorded: bool = False) -> None:
        """Hold a new pod; `is_recorded`: an earlier kubelet has recorded it."""
        self.pods[pod.key] = pod
        name = pod.pod.metadata.key
        self._names[name] = self._names.get(name, 0) + 1
        if is_recorded:
            self._recorded[pod.key] = None

    def begin(self, pod: Pod, now: float) -> None:
        """Start a new pod, or hold it until its predecessor of the same name has ended."""
        name = pod.pod.metadata.key
        same = (k for k, p in self.pods.items() if p.pod.metadata.key == name and p.state != PodState.TERMINATED)
        predecessor = next(same, None) if name in self._names else None
        self.add(pod)
        if predecessor is not None:
            pod.become(PodState.HELD)
            self._held[pod.key] = predecessor
        else:
            self.perform(pod, pod.begin(now), now)

    def perform(self, pod: Pod, effects: list[Effect], now: float) -> None:
        """Pass each effect to its manager or to the shell, and set a timer for the pod's next change."""
        key = pod.key
        if pod.termination is not None:
            self.start_times.ending(key, now)
        for effect in effects:
            handler = self._handlers.get(type(effect))
            if handler is None:
                self._out.effects.append(effect)
            else:
                handler(pod, effect, now)
        if pod.state in _SHOWN and self._out.has_span(key):
            # The start is over when the API server has that status, unless it never will.
            if key in self.gone or not self._statuses.owes(key):
                self._out.end_span(key, "")
            else:
                self._out.span_stage(key, "running")
        due = pod.due_s
        if due is not None and self._timers.get(key, float("inf")) > due:
            self._timers[key] = due
            self._out.effects.append(SetTimer(due, "worker", key))

    def end(
        self, pod: Pod, now: float, cause: str, reason: str, message: str, grace_s: float = REMOVED_GRACE_S
    ) -> None:
        """End a pod because of its node, within the grace period in seconds."""
        is_disruption = cause not in ("rejected", "unbound", "over limit")
        ending = pod.terminate(now, grace_s, cause, reason=reason, message=message, disruption=is_disruption)
        self.perform(pod, ending, now)

    def reject(self, pod: Pod, reason: str, message: str, now: float) -> None:
        """End a pod that was admitted, with a status as if it had been rejected."""
        self.end(pod, now, "rejected", reason, "Pod was rejected: " + message)

    def report_rejection(self, pod: Pod, reason: str, message: str, now: float) -> None:
        """Reject a pod that was admitted and cannot have what it needs; count that, and record an Event about it."""
        self._out.counts.add("kubelet_admission_rejections_total", reason)
        self._out.event(pod.pod, reason, message, "Warning")
        self.reject(pod, reason, message, now)

    def due(self, key: WorkerKey, now: float) -> None:
        """Handle a pod's timer."""
        if self._timers.get(key, 0.0) <= now + 1e-6:
            self._timers.pop(key, None)
        if (pod := self.pods.get(key)) is not None:
            self.perform(pod, pod.advance(now), now)

    def on_saved(self, key: WorkerKey, seq: int, now: float) -> None:
        """Take the news that a pod's record is durable."""
        pod = self.pods.get(key)
        if pod is None or seq == 0:
            return
        if key not in self._recorded:
            self._recorded[key] = None
            self._out.log("kubelet.checkpoint", pod.pod, key, {"seq": seq})
        self.perform(pod, pod.on_saved(seq, now), now)

    def unhold_after(self, key: WorkerKey, now: float) -> None:
        """Start the pods that were held for this one, because it has ended."""
        for waiting in [k for k, predecessor in self._held.items() if predecessor == key]:
            del self._held[waiting]
            if (successor := self.pods.get(waiting)) is not None:
                self.perform(successor, successor.unhold(now), now)

    def is_live(self, name: Key) -> bool:
        """Whether any part of a pod of that name runs or is being ended."""
        return name in self._names

    def is_active(self, key: WorkerKey) -> bool:
        """Whether the pod is here and not terminated."""
        pod = self.pods.get(key)
        return pod is not None and pod.state != PodState.TERMINATED

    @property
    def running(self) -> int:
        """The number of pods that have started a container and are not terminated."""
        return sum(1 for p in self.pods.values() if p.ever_started and p.state != PodState.TERMINATED)

    def leaving(self) -> frozenset[WorkerKey]:
        """Return the pods that are being ended: their capacity becomes free by itself."""
        return frozenset(k for k, p in self.pods.items() if p.termination is not None)

    def images_in_use(self) -> frozenset[str]:
        """Return the images of containers that run, or ran and whose pods are still known."""
        return frozenset(c.image for pod in self.pods.values() for c in pod.containers if c.has_run)

    def on_ended(self, pod: Pod) -> None:
        """Free the pod's name, because nothing of the pod runs any more."""
        name = pod.pod.metadata.key
        left = self._names.get(name, 0) - 1
        if left > 0:
            self._names[name] = left
        else:
            self._names.pop(name, None)
        self._held.pop(pod.key, None)

    def forget(self, key: WorkerKey) -> None:
        """Stop holding the pod."""
        self.pods.pop(key, None)
        self._timers.pop(key, None)
        self.start_times.forget(key)
        self.on_forget(key)

    def drop(self, pod: Pod) -> None:
        """Forget a pod that has ended and whose object is gone."""
        key = pod.key
        self.forget(key)
        self.gone.pop(key, None)
        self._statuses.forget(key)
        self._out.end_span(key, "")
        self.erase_of(pod)

    def erase_of(self, pod: Pod) -> None:
        """Erase the pod's record, if any: the API server knows the end, so no restart could run the pod again."""
        if self._recorded.pop(pod.key, 0) is None:
            self.erase(pod.key)

    def erase(self, key: WorkerKey) -> None:
        """Erase the pod's data on disk."""
        gone = PodRecord(self._node, key.uid, key.generation, is_gone=True)
        self._out.effects.append(Save(key, 0, lines_of(gone)))
