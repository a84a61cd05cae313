"""Cluster events, precise enough to decide which pods they may help (KEP-4247).

A plugin that rejected a pod names the events that could change its answer and, for each, a hint function
that checks the objects. The queue asks only the plugins that rejected the pod.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import IntFlag, StrEnum
from typing import Any

from scheduler.cache.node_info import PodInfo


class Action(IntFlag):
    """The change of an object; a registration may name several."""

    ADD = 1
    DELETE = 2
    UPDATE_NODE_ALLOCATABLE = 4
    UPDATE_NODE_LABEL = 8
    UPDATE_NODE_TAINT = 16
    UPDATE_NODE_CONDITION = 32
    UPDATE_NODE_ANNOTATION = 64
    UPDATE_NODE_SESSION = 128
    """Ours: the node's kubelet began a new session (kubelet-unbinding 4.5)."""
    UPDATE_POD_LABEL = 256
    UPDATE_POD_SCALE_DOWN = 512
    UPDATE_POD_GATES_ELIMINATED = 1024
    UPDATE_POD_TOLERATION = 2048
    UPDATE_OTHER = 4096
    UPDATE_POD_GENERATED_CLAIM = 8192
    UPDATE_NODE_DECLARED_FEATURE = 16384
    ALL = 2 * UPDATE_NODE_DECLARED_FEATURE - 1
    UPDATE = ALL & ~(ADD | DELETE)

    @property
    def words(self) -> str:
        """The text in messages: every kind of update together is `UPDATE`."""
        if self == Action.ALL or Action.UPDATE not in self:
            return self.name or str(self)
        rest = self & ~Action.UPDATE
        return f"{rest.name}|UPDATE" if rest else "UPDATE"


ASSIGNED_POD = "AssignedPod"
UNSCHEDULED_POD = "UnscheduledPod"
POD = "Pod"
"""The resource in a registration: pods of either kind."""
NODE = "Node"
WILDCARD = "*"


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """One kind of change. `label` is the name that metrics and logs use."""

    resource: str
    action: Action
    label: str = ""

    @property
    def is_wildcard(self) -> bool:
        """Whether the event may help every pod."""
        return self.resource == WILDCARD

    def matches(self, registered: ClusterEvent) -> bool:
        """Whether a plugin that registered `registered` registered this event."""
        if registered.resource == WILDCARD or self.resource == WILDCARD:
            return True
        if not self.action & registered.action:
            return False
        if registered.resource == POD:
            return self.resource in (ASSIGNED_POD, UNSCHEDULED_POD)
        return registered.resource == self.resource


class Hint(StrEnum):
    """A hint function's answer."""

    QUEUE = "Queue"
    SKIP = "QueueSkip"


def queue_if(helps: bool) -> Hint:
    """Return the answer of a hint function that knows whether the event may help the pod."""
    return Hint.QUEUE if helps else Hint.SKIP


HintFunction = Callable[[PodInfo, Any, Any], Hint]
"""`(the waiting pod, old object or None, new object or None) -> Hint`; an exception counts as Queue.
Objects are `Node` views for node events and `Pod` views for pod events."""


@dataclass(frozen=True, slots=True)
class Subjects:
    """What a hint compares first, so that only few of the pods that wait must be asked.

    The hint says Skip for every pod that has none of the change's subjects. `of_pod`: the subjects of a waiting pod;
    None: any. `of_change`: those of a change, from the old and the new object; None: any pod may be helped.
    """

    of_pod: Callable[[PodInfo], tuple[Hashable, ...] | None]
    of_change: Callable[[Any, Any], tuple[Hashable, ...] | None]


@dataclass(frozen=True, slots=True)
class Registration:
    """An event for which a plugin wants its rejected pods woken; without a hint, always.

    `subjects`: which pods the hint need be asked about; None: about all.
    """

    event: ClusterEvent
    hint: HintFunction | None = None
    subjects: Subjects | None = None


def with_taints(registered: Sequence[Registration]) -> tuple[Registration, ...]:
    """Add a registration for every change of a node's taints if new nodes are registered and taints are not.

    Upstream's collection of registrations does so, with the hint that always queues: a plugin may have missed a
    node that was tainted when it came (kubernetes #109437). Source: upstream `pkg/scheduler/scheduler.go`,
    `buildQueueingHintMap`.
    """
    actions = Action(0)
    for registration in registered:
        if registration.event.resource == NODE:
            actions |= registration.event.action
    if Action.ADD in actions and Action.UPDATE_NODE_TAINT not in actions:
        return (*registered, Registration(ClusterEvent(NODE, Action.UPDATE_NODE_TAINT)))
    return tuple(registered)


UNSCHEDULED_POD_ADD = ClusterEvent(UNSCHEDULED_POD, Action.ADD, "UnscheduledPodAdd")
UNSCHEDULED_POD_UPDATE = ClusterEvent(UNSCHEDULED_POD, Action.UPDATE_OTHER, "UnscheduledPodUpdate")
ASSIGNED_POD_ADD = ClusterEvent(ASSIGNED_POD, Action.ADD, "AssignedPodAdd")
ASSIGNED_POD_DELETE = ClusterEvent(ASSIGNED_POD, Action.DELETE, "AssignedPodDelete")
NODE_ADD = ClusterEvent(NODE, Action.ADD, "NodeAdd")
NODE_DELETE = ClusterEvent(NODE, Action.DELETE, "NodeDelete")
SCHEDULE_ATTEMPT_FAILURE = ClusterEvent(WILDCARD, Action.ALL, "ScheduleAttemptFailure")
BACKOFF_COMPLETE = ClusterEvent(WILDCARD, Action.ALL, "BackoffComplete")
POP_FROM_BACKOFF = ClusterEvent(WILDCARD, Action.ALL, "PopFromBackoffQ")
FORCE_ACTIVATE = ClusterEvent(WILDCARD, Action.ALL, "ForceActivate")
UNSCHEDULABLE_TIMEOUT = ClusterEvent(WILDCARD, Action.ALL, "UnschedulableTimeout")
EXCLUSION_EXPIRED = ClusterEvent(WILDCARD, Action.ALL, "ExclusionExpired")
UNBOUND = ClusterEvent(WILDCARD, Action.ALL, "Unbound")
