"""What a node's machine wants done: one value for each effect. The shell performs them in order. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from kubelet.managers.device_calls import CallPlugin, DevicesChanged
from kubelet.runtime.line_file import Lines
from kubelet.view import KubeletPod, WorkerKey
from services.api.meta import Document, Key


class Log(msgspec.Struct, frozen=True):
    """Write a line of the event log, now."""

    ev: str
    pod: KubeletPod | None
    key: WorkerKey
    data: dict[str, Any]
    name: Key | None = None


class Tell(msgspec.Struct, frozen=True):
    """Record an Event about a pod."""

    pod: KubeletPod
    reason: str
    message: str
    type: str


class SetTimer(msgspec.Struct, frozen=True):
    """Call `due(what, key)` at that time."""

    at_s: float
    what: str
    key: WorkerKey


class Save(msgspec.Struct, frozen=True):
    """Make what is known of a pod durable, then call `saved(key, seq)`; seq 0: nobody waits."""

    key: WorkerKey
    seq: int
    lines: Lines


class WriteStatuses(msgspec.Struct, frozen=True):
    """There are statuses to write."""


class CallUnbind(msgspec.Struct, frozen=True):
    """Send the unbind of this pod and report with `unbind_answered`."""

    key: WorkerKey
    pod: KubeletPod
    reason: str
    message: str


class ReadPod(msgspec.Struct, frozen=True):
    """Read the pod live and report with `pod_read`."""

    key: WorkerKey
    pod: KubeletPod


class ReadNode(msgspec.Struct, frozen=True):
    """Read the own Node live and report with `node_read`, or with `session_read` when `for_session`."""

    key: WorkerKey
    for_session: bool


class DeletePod(msgspec.Struct, frozen=True):
    """Delete the pod with its uid as precondition and report with `delete_answered`."""

    key: WorkerKey
    pod: KubeletPod
    grace_s: int | None


class CreateMirror(msgspec.Struct, frozen=True):
    """Create the object that shows a static pod and report with `statics.mirrors.answered`."""

    name: Key
    document: Document


class DeleteMirror(msgspec.Struct, frozen=True):
    """Delete exactly this mirror, at once, and report with `statics.mirrors.answered`."""

    pod: KubeletPod


class ReadClaims(msgspec.Struct, frozen=True):
    """Read the claims of that pod live and report with `claims.claims_read`."""

    key: WorkerKey
    pod: KubeletPod
    names: tuple[str, ...]


class PublishSlices(msgspec.Struct, frozen=True):
    """Delete the slices of the drivers in `wipe` (None: all of the node), and have those in `publish` offer anew."""

    publish: tuple[str, ...]
    wipe: tuple[str, ...] | None


class ReportNode(msgspec.Struct, frozen=True):
    """Write the Node's status: these pressures stand now."""

    conditions: tuple[str, ...]


class ReportTroubles(msgspec.Struct, frozen=True):
    """Write the Node's status: it is not Ready because of these; none: it is."""

    troubles: tuple[str, ...]


class PowerOff(msgspec.Struct, frozen=True):
    """The shutdown is over: the machine may be switched off."""


class ReportImages(msgspec.Struct, frozen=True):
    """Write the Node's status: these images are on it, with their sizes in bytes."""

    images: tuple[tuple[str, int], ...]


class TellNode(msgspec.Struct, frozen=True):
    """Record an Event about the Node."""

    reason: str
    message: str
    type: str


class StageEvent(msgspec.Struct, frozen=True):
    """Record an Event about the object."""

    type: str
    reason: str
    message: str


class StagePatch(msgspec.Struct, frozen=True):
    """Patch the object; `type`: json, merge or strategic."""

    type: str
    subresource: str
    body: Any


class StageDelete(msgspec.Struct, frozen=True):
    """Delete the object at once."""


Operation = StageEvent | StagePatch | StageDelete
"""What playing a stage does to its object."""


class PlayStage(msgspec.Struct, frozen=True):
    """Perform what a stage wants of a pod, in order, and report with `staging.played`."""

    key: WorkerKey
    pod: KubeletPod
    stage: str
    operations: tuple[Operation, ...]
    is_immediate: bool


class StartSpan(msgspec.Struct, frozen=True):
    """A pod sync begins: continue the trace of whoever caused it."""

    key: WorkerKey
    pod: KubeletPod
    traceparent: str


class SpanStage(msgspec.Struct, frozen=True):
    """The pod's way came to this point; said twice it counts once. `reason`: why it was refused."""

    key: WorkerKey
    stage: str
    reason: str = ""


class EndSpan(msgspec.Struct, frozen=True):
    """The API server knows that the pod runs or failed, or the pod is not ours any more."""

    key: WorkerKey
    error: str


Effect = (
    PlayStage
    | Log | Tell | SetTimer | Save | WriteStatuses | CallUnbind | ReadPod | ReadNode | DeletePod | StartSpan | SpanStage
    | EndSpan | ReportNode | ReportTroubles | PowerOff | ReportImages | TellNode | CreateMirror | DeleteMirror
    | CallPlugin | DevicesChanged | ReadClaims | PublishSlices
)  # fmt: skip
