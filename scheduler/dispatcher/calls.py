"""The API calls of scheduling a pod: write why it waits, on the pod or on its group, and bind it.

A status patch carries the status it starts from and the changes desired, so that it knows whether it would
change anything; the document is made when it is sent. It is a strategic merge patch, so without resource
version: the last writer of a condition wins. The uid is a precondition: a pod created again under the name
is never touched. Source: kep-5229 5 and 6; kep-5501 4.2.
"""

from __future__ import annotations

from typing import ClassVar, Final, Self

import msgspec
from msgspec.structs import replace

from services.api.kinds.pod import Pod
from services.api.kinds.podgroup import PodGroup
from services.api.meta import Condition, Document, Key, find_condition
from services.api.resources import resource_of_view
from services.api.times import format_time

POD_STATUS_PATCH: Final = "pod_status_patch"
POD_GROUP_STATUS_PATCH: Final = "podgroup_status_patch"
POD_BINDING: Final = "pod_binding"
RELEVANCES: Final = {POD_STATUS_PATCH: 1, POD_GROUP_STATUS_PATCH: 1, POD_BINDING: 2}
"""Relevances by call type: a bind makes every status about waiting pointless."""
CAUSES_MAX: Final = 8

POD_SCHEDULED: Final = "PodScheduled"
UNSCHEDULABLE: Final = "Unschedulable"
"""Reason of a condition: nodes were evaluated and none fits."""
SCHEDULER_ERROR: Final = "SchedulerError"
"""Reason of a condition: the attempt itself failed."""
NOT_READY: Final = "NotReadyForScheduling"
"""Reason of a condition: PreEnqueue rejected the pod (KEP-5501).

No attempt was made and no node was evaluated.
"""
SCHEDULING_GATED: Final = "SchedulingGated"
"""Reason of the condition that the API server writes at creation (KEP-3521)."""
GATED_MESSAGE: Final = "Scheduling is blocked due to non-empty scheduling gates"
"""The API server's message for it; KEP-5501 has the plugin use the same."""
NOTE_MAX: Final = 1024
"""Maximal number of characters of an event's note."""


class SetCondition(msgspec.Struct, frozen=True):
    """A condition to set; `observed_generation` 0: it has none."""

    reason: str
    message: str
    type: str = POD_SCHEDULED
    status: str = "False"
    observed_generation: int = 0

    def changes(self, old: Condition | None) -> bool:
        """Whether setting the condition changes it."""
        if old is None or (old.status, old.reason, old.message) != (self.status, self.reason, self.message):
            return True
        return self.observed_generation not in (0, old.observed_generation)

    def entry(self, old: Condition | None, wall_s: float) -> Document:
        """Return the element of the patch; the transition time moves only with the status."""
        entry = {
            "type": self.type,
            "status": self.status,
            "reason": self.reason,
            "message": self.message,
            "lastTransitionTime": self._since(old) or format_time(wall_s),
        }
        return entry | ({"observedGeneration": self.observed_generation} if self.observed_generation else {})

    def result(self, old: Condition | None) -> Condition | None:
        """Return the condition after the patch."""
        return Condition(self.type, self.status, self.reason, self.message, self._since(old))

    def _since(self, old: Condition | None) -> str | None:
        return old.last_transition_time if old is not None and old.status == self.status else None


class ClearCondition(msgspec.Struct, frozen=True):
    """A condition to remove, if it has this reason: conditions of other clients are not removed.

    `message`: the condition must also have this message, because the reason alone does not identify the writer;
    "": any.
    """

    reason: str = NOT_READY
    type: str = POD_SCHEDULED
    message: str = ""

    def changes(self, old: Condition | None) -> bool:
        """Whether the condition exists with that reason and that message."""
        return old is not None and old.reason == self.reason and self.message in ("", old.message)

    def entry(self, old: Condition | None, wall_s: float) -> Document:
        """Return the element of the patch that deletes the list's entry."""
        return {"$patch": "delete", "type": self.type}

    def result(self, old: Condition | None) -> Condition | None:
        """Return the condition after the patch, or None."""
        return None if self.changes(old) else old


ConditionChange = SetCondition | ClearCondition


class PodCall(msgspec.Struct, frozen=True, kw_only=True):
    """One desired call about one pod, as a value. `causes`: traceparents of its causes, the newest first."""

    key: Key
    uid: str
    causes: tuple[str, ...] = ()
    call_type: ClassVar[str]
    """The name in metrics and in the table of relevances."""

    @property
    def is_noop(self) -> bool:
        """Whether the pod is known to have the desired state already."""
        return False

    def merge(self, old: PodCall) -> Self:
        """Return this call, merged with the remaining changes of the older one of the same type."""
        return self

    def sync(self, found: Pod | PodGroup) -> Self:
        """Return this call, based on the object as it is now known."""
        return self

    def after(self, done: PodCall, rv: int) -> Self:
        """Return this call, based on the pod as `done` left it at that version."""
        return self


class StatusPatch(PodCall, frozen=True, kw_only=True):
    """The call `PATCH pods/status`: changes of conditions and, perhaps, the nomination.

    `conditions`, `nominated_node` (None: not known) and `rv` are the status it starts from. `nomination`: None
    leaves it alone, "" clears it. `event`: reason and message of an Event recorded when, and only if, the call
    is made. `is_report`: it contains only PreEnqueue's result, so it may have a rate limit of its own
    (KEP-5501).
    """

    conditions: tuple[Condition, ...] = ()
    nominated_node: str | None = ""
    rv: int = 0
    desired: tuple[ConditionChange, ...] = ()
    nomination: str | None = None
    event: tuple[str, str] | None = None
    is_report: bool = False
    call_type: ClassVar[str] = POD_STATUS_PATCH
    resource: ClassVar[str] = "pods"

    @property
    def is_noop(self) -> bool:
        """Whether the status has all the changes already."""
        return not self._renominates and not any(
            w.changes(find_condition(self.conditions, w.type)) for w in self.desired
        )

    @property
    def _renominates(self) -> bool:
        return self.nomination is not None and self.nomination != self.nominated_node

    def merge(self, old: PodCall) -> Self:
        """Return this call with the older one's nomination, conditions and event where this one has none."""
        assert isinstance(old, StatusPatch)
        types = {change.type for change in self.desired}
        kept = tuple(change for change in old.desired if change.type not in types)
        causes = tuple(dict.fromkeys((*self.causes, *old.causes)))[:CAUSES_MAX]
        # A newer base replaces an older one, but not the other way round: an object in the queue may lag.
        base = old if old.rv > self.rv else self
        return replace(
            self,
            conditions=base.conditions,
            nominated_node=base.nominated_node,
            rv=base.rv,
            desired=self.desired + kept,
            nomination=old.nomination if self.nomination is None else self.nomination,
            event=self.event if self.desired else old.event,
            causes=causes,
            is_report=self.is_report and old.is_report,
        )

    def sync(self, found: Pod | PodGroup) -> Self:
        """Return this call, based on the status in the watch, unless that is older than the known one."""
        if found.metadata.rv < self.rv:
            return self
        nominated = found.status.nominated_node_name if isinstance(found, Pod) else ""
        return replace(self, conditions=found.status.conditions, nominated_node=nominated, rv=found.metadata.rv)

    def after(self, done: PodCall, rv: int) -> Self:
        """Return this call, based on the status that `done` left."""
        if not isinstance(done, StatusPatch) or (rv and rv < self.rv):
            return self
        left = {condition.type: condition for condition in done.conditions}
        for change in done.desired:
            result = change.result(left.get(change.type))
            if result is None:
                left.pop(change.type, None)
            else:
                left[change.type] = result
        nominated = done.nominated_node if done.nomination is None else done.nomination
        return replace(self, conditions=tuple(left.values()), nominated_node=nominated, rv=max(rv, self.rv))

    def document(self, wall_s: float) -> Document | None:
        """Return the strategic merge patch to send now, or None when it would change nothing."""
        status: Document = {}
        entries = [
            change.entry(old, wall_s)
            for change in self.desired
            for old in [find_condition(self.conditions, change.type)]
            if change.changes(old)
        ]
        if entries:
            status["conditions"] = entries
        if self._renominates:
            status["nominatedNodeName"] = self.nomination or None
        return {"status": status} if status else None


def status_patch(
    pod: Pod,
    *desired: ConditionChange,
    nomination: str | None = None,
    event: tuple[str, str] | None = None,
    traceparent: str = "",
    is_report: bool = False,
) -> StatusPatch:
    """Return the call that makes these changes to the pod as it is known."""
    return StatusPatch(
        key=pod.metadata.key,
        uid=pod.metadata.uid,
        conditions=pod.status.conditions,
        nominated_node=pod.status.nominated_node_name,
        rv=pod.metadata.rv,
        desired=desired,
        nomination=nomination,
        event=event,
        causes=(traceparent,) if traceparent else (),
        is_report=is_report,
    )


def clear_nomination(pod: Pod, traceparent: str = "") -> StatusPatch:
    """Return the call that clears the pod's nomination, whether or not the known pod shows one."""
    return replace(status_patch(pod, nomination="", traceparent=traceparent), nominated_node=None)


class PodGroupStatusPatch(StatusPatch, frozen=True, kw_only=True):
    """The call `PATCH podgroups/status` (`preenqueue_report.target`).

    It works as for a pod, but a group has no nomination.
    """

    call_type: ClassVar[str] = POD_GROUP_STATUS_PATCH
    resource: ClassVar[str] = resource_of_view(PodGroup).name


def pod_group_status_patch(
    group: PodGroup, *desired: ConditionChange, event: tuple[str, str] | None = None, traceparent: str = ""
) -> PodGroupStatusPatch:
    """Return the call that makes these changes to the group as it is known."""
    return PodGroupStatusPatch(
        key=group.metadata.key,
        uid=group.metadata.uid,
        conditions=group.status.conditions,
        rv=group.metadata.rv,
        desired=desired,
        event=event,
        causes=(traceparent,) if traceparent else (),
        is_report=True,
    )


class PodBinding(PodCall, frozen=True, kw_only=True):
    """The call `POST pods/binding`: it always has an effect, whatever a status says; a later one replaces it.

    Its span is the binding cycle's child.
    """

    node: str
    expected_unbind_count: int | None = None
    call_type: ClassVar[str] = POD_BINDING


ApiCall = StatusPatch | PodBinding
