"""The scheduler's recorder: Events for people, and lines of the event log for the auditor."""

from dataclasses import dataclass, field
from typing import Any

from scheduler.cache.node_info import PodInfo
from scheduler.dispatcher.calls import StatusPatch
from scheduler.queue.queued_pod import Pool, QueuedPod
from services.api.kinds.podgroup import PodGroup
from services.api.meta import Key
from services.api.resources import resource_of_view, resources
from services.api.seams import EventLog, Span
from services.client.recorder import Recorder
from services.reconcile.actions import Related


@dataclass
class SchedulerRecorder:
    """The recorder and the event log, in the words of a scheduler."""

    recorder: Recorder
    events: EventLog
    _pools: dict[str, str] = field(default_factory=dict, init=False)
    """The pool of each queued pod, by uid, as far as moves are recorded."""

    def event(
        self,
        info: PodInfo,
        reason: str,
        message: str,
        *,
        is_warning: bool = False,
        action: str = "Scheduling",
        related: PodInfo | None = None,
        traceparent: str = "",
    ) -> None:
        """Send an Event about the pod, some time soon; `related`: the pod that caused it."""
        self.recorder.event(
            kind="Pod",
            api_version="v1",
            key=info.key,
            uid=info.uid,
            reason=reason,
            message=message,
            type="Warning" if is_warning else "Normal",
            action=action,
            related=Related("Pod", "v1", related.key, related.uid, _version(related)) if related is not None else None,
            # What happens to a victim, the profile of the pod for whose sake says.
            reporter=(related or info).spec.scheduler_name,
            resource_version=_version(info),
            traceparent=traceparent,
        )

    def group_event(self, key: Key, uid: str, profile: str, reason: str, message: str, traceparent: str) -> None:
        """Send a warning about a pod group, some time soon."""
        resource = resource_of_view(PodGroup)
        self.recorder.event(
            kind=resource.kind,
            api_version=resource.api_version,
            key=key,
            uid=uid,
            reason=reason,
            message=message,
            type="Warning",
            action="Scheduling",
            reporter=profile,
            traceparent=traceparent,
        )

    def report(self, call: StatusPatch, size: int) -> None:
        """Write to the event log that a report of PreEnqueue is sent to a pod or its group; `size`: its bytes."""
        kind = resources()[call.resource].kind
        self.events.write(
            "sched.reported", obj=(kind, call.key.namespace, call.key.name, call.uid), data={"bytes": size}
        )

    def gate(self, ev: str, info: PodInfo, data: dict[str, Any]) -> None:
        """Write PreEnqueue's answer about the pod to the event log."""
        obj = ("Pod", info.key.namespace, info.key.name, info.uid)
        self.events.write(ev, obj=obj, rv_seen=info.metadata.rv, data=data)

    def move(self, queued: QueuedPod, pool: Pool, by: str = "", hint: str = "") -> None:
        """Write to the event log that the pod has entered a pool of the queue, or left the queue (empty pool).

        `by`, `hint`: as in the queue's `on_move`.
        """
        info = queued.info
        before = self._pools.pop(info.uid, "")
        if pool is not Pool.NONE:
            self._pools[info.uid] = pool
        obj = ("Pod", info.key.namespace, info.key.name, info.uid)
        self.events.write("sched.moved", obj=obj, data={"from": before, "to": pool, "by": by, "hint": hint})

    def line(
        self,
        ev: str,
        info: PodInfo,
        node: str,
        span: Span,
        data: dict[str, Any],
        rv: int | None = None,
        rv_seen: int | None = None,
    ) -> None:
        """Write a line about the pod to the event log (guarantees 1.2); `rv_seen` is the pod's, if nothing else is."""
        self.events.write(
            ev,
            obj=("Pod", info.key.namespace, info.key.name, info.uid),
            rv_seen=info.metadata.rv if rv_seen is None else rv_seen,
            rv=rv,
            node=node,
            trace_id=span.trace_id,
            data=data,
        )


def _version(info: PodInfo) -> str:
    return info.metadata.resource_version
