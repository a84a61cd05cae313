"""What a node wants done: one value for each effect, and the list on which they wait to be performed. Pure.

Pods and managers emit effects; the shell (`agent`) performs them in order. Those from `StatusChanged` on are
addressed to managers of the same node: `PodTable` hands them over at once, and they never reach the shell.
"""

from typing import Any, Final

import msgspec

from kubelet.managers.device_calls import CallPlugin, DevicesChanged
from kubelet.references.references import Reference
from kubelet.runtime.claims import HeldClaim
from kubelet.runtime.line_file import Lines
from kubelet.view import KubeletPod, WorkerKey
from services.api.meta import Document, Key
from services.kwok.stages.operation import Operation
from services.telemetry.metrics import Counts, Histogram

NODE_KEY: Final = WorkerKey("", 0)
"""Of timers that are about no single pod."""


class Effect(msgspec.Struct, frozen=True):
    """What a node wants done."""


class Log(Effect, frozen=True):
    """Write a line of the event log, now."""

    ev: str
    pod: KubeletPod | None
    key: WorkerKey
    data: dict[str, Any]
    name: Key | None = None


class RecordEvent(Effect, frozen=True):
    """Record an Event about a pod, or about the part of it that `field_path` names."""

    pod: KubeletPod
    reason: str
    message: str
    type: str
    field_path: str = ""


class SetTimer(Effect, frozen=True):
    """Call `due(what, key)` at that time."""

    at_s: float
    what: str
    key: WorkerKey


class Save(Effect, frozen=True):
    """Make what is known of a pod durable, then call `saved(key, seq)`; seq 0: without an answer."""

    key: WorkerKey
    seq: int
    lines: Lines


class WriteStatuses(Effect, frozen=True):
    """There are statuses to write."""


class CallUnbind(Effect, frozen=True):
    """Send the unbind of this pod and report with `unbind_answered`."""

    key: WorkerKey
    pod: KubeletPod
    reason: str
    message: str


class ReadPod(Effect, frozen=True):
    """Read the pod live and report with `pod_read`."""

    key: WorkerKey
    pod: KubeletPod


class ReadNode(Effect, frozen=True):
    """Read the own Node live and report with `node_read`, or with `session_read` when `for_session`."""

    key: WorkerKey
    for_session: bool


class DeletePod(Effect, frozen=True):
    """Delete the pod with its uid as precondition and report with `delete_answered`."""

    key: WorkerKey
    pod: KubeletPod
    grace_s: int | None


class CreateMirror(Effect, frozen=True):
    """Create the object that shows a static pod and report with `static_pods.answered`."""

    name: Key
    document: Document


class DeleteMirror(Effect, frozen=True):
    """Delete exactly this mirror, at once, and report with `static_pods.answered`."""

    pod: KubeletPod


class ReadClaims(Effect, frozen=True):
    """Read the claims of that pod live and report with `claims.claims_read`."""

    key: WorkerKey
    pod: KubeletPod
    names: tuple[str, ...]


class ReadReferences(Effect, frozen=True):
    """Read live what a pod refers to, and report with `references.references_read`. `container`: whose variables name
    it; "": the pod's volumes do. `all`: with what was read just before."""

    key: WorkerKey
    pod: KubeletPod
    container: str
    wanted: tuple[Reference, ...]
    all: tuple[Reference, ...]


class ReadVolumes(Effect, frozen=True):
    """Read live which volumes the pod's claims are bound to, and report with `volumes.volumes_read`."""

    key: WorkerKey
    pod: KubeletPod


class ReadAttached(Effect, frozen=True):
    """Read live what is attached to the own Node and report with `volumes.node_read` and `volumes.looked`."""

    key: WorkerKey


class CallDriver(Effect, frozen=True):
    """Have a driver prepare or unprepare claims, over the connection of that number, and report with
    `claims.answered`. `service`: as the driver offers it, for example v1.DRAPlugin."""

    key: WorkerKey
    instance: int
    driver: str
    service: str
    call: str
    claims: tuple[HeldClaim, ...]


class WipeSlices(Effect, frozen=True):
    """Delete the slices that drivers of these names have published for the node."""

    drivers: tuple[str, ...]


class ReportNode(Effect, frozen=True):
    """Write the Node's status, in which these are other now (fields of `NodeReport`); None: as before."""

    pressures: tuple[str, ...] | None = None
    reasons: tuple[str, ...] | None = None
    images: tuple[tuple[str, int], ...] | None = None
    volumes_in_use: tuple[str, ...] | None = None


class PowerOff(Effect, frozen=True):
    """The shutdown is over: the machine may be switched off."""


class RecordNodeEvent(Effect, frozen=True):
    """Record an Event about the Node."""

    reason: str
    message: str
    type: str


class PlayStage(Effect, frozen=True):
    """Perform what a stage wants of a pod, in order, and report with `staging.played`."""

    key: WorkerKey
    pod: KubeletPod
    stage: str
    operations: tuple[Operation, ...]
    is_immediate: bool


class StartSpan(Effect, frozen=True):
    """A pod sync begins: continue the trace of its cause."""

    key: WorkerKey
    pod: KubeletPod
    traceparent: str


class SpanStage(Effect, frozen=True):
    """The pod's start came to this point; only the first time counts. `reason`: why it was rejected."""

    key: WorkerKey
    stage: str
    reason: str = ""


class EndSpan(Effect, frozen=True):
    """The API server knows that the pod runs or failed, or the pod is not ours any more."""

    key: WorkerKey
    error: str


class StatusChanged(Effect, frozen=True):
    """The pod waits for time to pass: its status is worth writing."""


class PodStarted(Effect, frozen=True):
    """The first container of the pod was started."""

    container: str


class PodStopped(Effect, frozen=True):
    """The last container of the pod has stopped; `container` is the one that `PodStarted` named."""

    container: str


class PodEnded(Effect, frozen=True):
    """Nothing of the pod runs or is held any more."""


class StartFailed(Effect, frozen=True):
    """The start has failed so often, for this reason, that the pod may be unbound if that is configured."""

    reason: str
    message: str


class PodRejected(Effect, frozen=True):
    """The pod was admitted, and what it needs cannot be had here: reject it after all."""

    reason: str
    message: str


class ResizeAttempted(Effect, frozen=True):
    """Carrying a resize out took so long. When it succeeded, other resizes may fit now."""

    took_s: float
    succeeded: bool = True


class PrepareDevices(Effect, frozen=True):
    """A container is about to start: have plugins prepare its devices, then call `devices_prepared`."""

    container: str


class ResolveReferences(Effect, frozen=True):
    """A container is about to start, or "": the pod's volumes are about to be mounted: read what they name, then call
    `references_read`."""

    container: str
    wanted: tuple[Reference, ...]


class AttachVolumes(Effect, frozen=True):
    """Call `volumes_attached` once the controller has attached the pod's volumes, or `volumes_failed`."""


class AttachGivenUp(Effect, frozen=True):
    """The pod no longer waits for its volumes to be attached, for this time."""


class PrepareClaims(Effect, frozen=True):
    """Read the pod's claims, then call `claims_listed`, or `claims_prepared` with a problem."""


class CallDrivers(Effect, frozen=True):
    """The record of the claims is durable: prepare them, then call `claims_prepared`; `is_broken`: the first call of a
    driver fails."""

    is_broken: bool


class UnprepareClaims(Effect, frozen=True):
    """Nothing of the pod runs: unprepare its claims, then call `claims_unprepared`."""


class Outbox:
    """The effects of a node that are not performed yet, in order, its counters, and the pod syncs that are traced.
    Invariant: the stages and the end of a sync follow its start."""

    def __init__(self) -> None:
        self.effects: list[Effect | CallPlugin | DevicesChanged] = []
        self.counts = Counts()
        self.distributions: dict[str, dict[tuple[str, ...], Histogram]] = {}
        """What this node counts, and observes, by name and label values; `kubelet/metrics.py` says what each is."""
        self._spans: dict[WorkerKey, str] = {}  # running spans, and the error they will end with

    def log(
        self, ev: str, pod: KubeletPod | None, key: WorkerKey, data: dict[str, Any], name: Key | None = None
    ) -> None:
        """Write a line of the event log; `name` where there is no pod to take it from."""
        self.effects.append(Log(ev, pod, key, data, name))

    def event(self, pod: KubeletPod, reason: str, message: str, event_type: str) -> None:
        """Record an Event about the pod."""
        self.effects.append(RecordEvent(pod, reason, message, event_type))

    def start_span(self, key: WorkerKey, pod: KubeletPod, traceparent: str) -> None:
        """A pod sync begins."""
        self._spans[key] = ""
        self.effects.append(StartSpan(key, pod, traceparent))

    def span_stage(self, key: WorkerKey, stage: str, reason: str = "") -> None:
        """The pod's way came to this point."""
        if key in self._spans:
            self.effects.append(SpanStage(key, stage, reason))

    def fail_span(self, key: WorkerKey, error: str) -> None:
        """The sync will end with this error, once the API server knows."""
        if key in self._spans:
            self._spans[key] = error

    def has_span(self, key: WorkerKey) -> bool:
        """Whether a sync of the pod is going on."""
        return key in self._spans

    def end_span(self, key: WorkerKey, error: str) -> None:
        """The sync is over; what `fail_span` said before goes first."""
        if key in self._spans:
            self.effects.append(EndSpan(key, self._spans.pop(key) or error))

    def observe(self, name: str, value: float, *labels: str, bounds: tuple[float, ...] = ()) -> None:
        """Count a value of a distribution, in buckets where it has `bounds`."""
        held = self.distributions.setdefault(name, {})
        found = held.get(labels)
        if found is None:
            found = held[labels] = Histogram(bounds)
        found.observe(value)
