"""The effects that a node requests, one value for each, and the list of pending ones. Pure.

Pods and managers emit effects; the shell (`agent`) performs them in order. Those from `StatusChanged` on
are addressed to managers of the same node: `PodTable` hands them over at once, and they never reach the
shell.
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
"""The key of timers that concern no single pod."""


class Effect(msgspec.Struct, frozen=True):
    """Base of the effects that a node requests."""


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
    """Make a pod's record durable, then call `saved(key, seq)`; with seq 0 without a call."""

    key: WorkerKey
    seq: int
    lines: Lines


class WriteStatuses(Effect, frozen=True):
    """Write the pending statuses."""


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
    """Create the object that shows a static pod and report with `static_pods.on_answer`."""

    name: Key
    document: Document


class DeleteMirror(Effect, frozen=True):
    """Delete exactly this mirror, at once, and report with `static_pods.on_answer`."""

    pod: KubeletPod


class ReadClaims(Effect, frozen=True):
    """Read the claims of that pod live and report with `claims.claims_read`."""

    key: WorkerKey
    pod: KubeletPod
    names: tuple[str, ...]


class ReadReferences(Effect, frozen=True):
    """Read live the objects to which a pod refers, and report with `references.references_read`.

    `container`: the container whose variables refer to them; "": the pod's volumes do. `all`: the answers
    include those that were read just before.
    """

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
    """Read live which volumes are attached to the own Node.

    The report goes to `volumes.node_read` and `volumes.look_again`.
    """

    key: WorkerKey


class CallDriver(Effect, frozen=True):
    """Call a driver to prepare or unprepare claims, over the connection of that number.

    Report with `claims.on_answer`. `service`: as the driver offers it, for example v1.DRAPlugin.
    """

    key: WorkerKey
    instance: int
    driver: str
    service: str
    call: str
    claims: tuple[HeldClaim, ...]


class WipeSlices(Effect, frozen=True):
    """Delete the slices that the drivers of these names have published for the node."""

    drivers: tuple[str, ...]


class ReportNode(Effect, frozen=True):
    """Write the Node's status with these changed fields of `NodeReport`; None: unchanged."""

    pressures: tuple[str, ...] | None = None
    reasons: tuple[str, ...] | None = None
    images: tuple[tuple[str, int], ...] | None = None
    volumes_in_use: tuple[str, ...] | None = None


class PowerOff(Effect, frozen=True):
    """Switch the machine off, because the shutdown is over."""


class RecordNodeEvent(Effect, frozen=True):
    """Record an Event about the Node."""

    reason: str
    message: str
    type: str


class PlayStage(Effect, frozen=True):
    """Perform a stage's operations on a pod, in order, and report with `staging.on_played`."""

    key: WorkerKey
    pod: KubeletPod
    stage: str
    operations: tuple[Operation, ...]
    is_immediate: bool


class StartSpan(Effect, frozen=True):
    """Begin the span of a pod sync, in the trace of its cause."""

    key: WorkerKey
    pod: KubeletPod
    traceparent: str


class SpanStage(Effect, frozen=True):
    """Mark a stage that the pod's start has reached; only the first time counts.

    `reason`: why the pod was rejected.
    """

    key: WorkerKey
    stage: str
    reason: str = ""


class EndSpan(Effect, frozen=True):
    """End the sync's span: the API server knows that the pod runs or failed, or the pod has left the node."""

    key: WorkerKey
    error: str


class StatusChanged(Effect, frozen=True):
    """Write the pod's status: the pod waits for time to pass, so its present status matters."""


class PodStarted(Effect, frozen=True):
    """Notice that the first container of the pod was started."""

    container: str


class PodStopped(Effect, frozen=True):
    """Notice that the last container of the pod has stopped; `container` is the one that `PodStarted` named."""

    container: str


class PodEnded(Effect, frozen=True):
    """Notice that nothing of the pod runs or is held any more."""


class StartFailed(Effect, frozen=True):
    """Notice that the start has failed too often for this reason.

    The pod may then be unbound, if that is configured.
    """

    reason: str
    message: str


class PodRejected(Effect, frozen=True):
    """Reject an admitted pod after all, because the node cannot provide what it needs."""

    reason: str
    message: str


class ResizeAttempted(Effect, frozen=True):
    """Notice that a resize attempt ended, and its duration. After a success other resizes may fit."""

    took_s: float
    succeeded: bool = True


class PrepareDevices(Effect, frozen=True):
    """Ask plugins to prepare the devices of a container that is about to start, then call `devices_prepared`."""

    container: str


class ResolveReferences(Effect, frozen=True):
    """Read the objects to which a container or the pod's volumes refer, then call `references_read`.

    The container is about to start. If its name is "", the pod's volumes are about to be mounted.
    """

    container: str
    wanted: tuple[Reference, ...]


class AttachVolumes(Effect, frozen=True):
    """Wait until the controller has attached the pod's volumes.

    Then call `volumes_attached`, or `volumes_failed`.
    """


class AttachGivenUp(Effect, frozen=True):
    """Stop waiting for the attachment of the pod's volumes, for this time."""


class PrepareClaims(Effect, frozen=True):
    """Read the pod's claims, then call `claims_listed`, or `claims_prepared` with a problem."""


class CallDrivers(Effect, frozen=True):
    """Prepare the pod's claims, whose record is durable now, then call `claims_prepared`.

    `is_broken`: the first call of a driver fails.
    """

    is_broken: bool


class UnprepareClaims(Effect, frozen=True):
    """Unprepare the pod's claims, because nothing of the pod runs, then call `claims_unprepared`."""


class Outbox:
    """The pending effects of a node in order, its counters, and the traced pod syncs.

    Invariant: the stages and the end of a sync follow its start.
    """

    def __init__(self) -> None:
        self.effects: list[Effect | CallPlugin | DevicesChanged] = []
        self.counts = Counts()
        self.distributions: dict[str, dict[tuple[str, ...], Histogram]] = {}
        """What this node counts, and observes, by name and label values; `kubelet/metrics.py` says what each is."""
        self._spans: dict[WorkerKey, str] = {}  # running spans, and the error they will end with

    def log(
        self, ev: str, pod: KubeletPod | None, key: WorkerKey, data: dict[str, Any], name: Key | None = None
    ) -> None:
        """Write a line of the event log; `name`: used when there is no pod to take it from."""
        self.effects.append(Log(ev, pod, key, data, name))

    def event(self, pod: KubeletPod, reason: str, message: str, event_type: str) -> None:
        """Record an Event about the pod."""
        self.effects.append(RecordEvent(pod, reason, message, event_type))

    def start_span(self, key: WorkerKey, pod: KubeletPod, traceparent: str) -> None:
        """Begin the span of a pod sync."""
        self._spans[key] = ""
        self.effects.append(StartSpan(key, pod, traceparent))

    def span_stage(self, key: WorkerKey, stage: str, reason: str = "") -> None:
        """Mark a stage that the pod's start has reached."""
        if key in self._spans:
            self.effects.append(SpanStage(key, stage, reason))

    def fail_span(self, key: WorkerKey, error: str) -> None:
        """Set the error with which the sync's span will end, once the API server knows."""
        if key in self._spans:
            self._spans[key] = error

    def has_span(self, key: WorkerKey) -> bool:
        """Whether a sync of the pod is under way."""
        return key in self._spans

    def end_span(self, key: WorkerKey, error: str) -> None:
        """End the sync's span; an error set by `fail_span` takes precedence."""
        if key in self._spans:
            self.effects.append(EndSpan(key, self._spans.pop(key) or error))

    def observe(self, name: str, value: float, *labels: str, bounds: tuple[float, ...] = ()) -> None:
        """Count a value of a distribution, in buckets if the distribution has `bounds`."""
        held = self.distributions.setdefault(name, {})
        found = held.get(labels)
        if found is None:
            found = held[labels] = Histogram(bounds)
        found.observe(value)
