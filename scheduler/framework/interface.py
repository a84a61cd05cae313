"""The extension points, as protocols: a plugin implements the ones it needs and nothing else.

A plugin is a class with a `name`; the runner finds out by looking which points it serves. Filters and
scores come in two forms: for one node (`filter`, `score`: what a newcomer writes) or for all nodes at
once over the columns (`filter_all`, `score_all`). A plugin may offer both; a property test holds the two
forms of every built-in equal. A plugin whose answer depends only on the pod's template and the node's
own row says so with `row_signature`; the runner then remembers its answers and asks again only about
rows that changed.

Source: KEP-624; upstream `staging/src/k8s.io/kube-scheduler/framework/interface.go`.
"""

# ruff: noqa: D102  (a protocol's class docstring says what its one method does)

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from scheduler.cache.columns import Columns
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.events import Registration
from services.api.kinds.podgroup import PodGroup

if TYPE_CHECKING:
    from scheduler.framework.diagnosis import Diagnosis

Mask = NDArray[np.bool_]
Scores = NDArray[np.float64]
MAX_NODE_SCORE = 100


class Code(IntEnum):
    """The seven answers. Unschedulable: preemption may help; UnschedulableAndUnresolvable: it may not.

    Skip: this plugin has nothing to say in this cycle. Wait: only from Permit and PlacementFeasible. Pending: waits
    for an external actor, and once woken skips the back-off. Error: a bug or a refused call, never a plain no.
    """

    SUCCESS = 0
    ERROR = 1
    UNSCHEDULABLE = 2
    UNSCHEDULABLE_AND_UNRESOLVABLE = 3
    WAIT = 4
    SKIP = 5
    PENDING = 6

    @property
    def is_rejected(self) -> bool:
        """Whether it is one of the plain noes."""
        return self in (Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING)


class Status(msgspec.Struct, frozen=True):
    """A plugin's answer; `reasons` are for people; `plugin` is filled in by the runner."""

    code: Code = Code.SUCCESS
    reasons: tuple[str, ...] = ()
    plugin: str = ""

    @property
    def is_success(self) -> bool:
        """Whether the answer is yes."""
        return self.code is Code.SUCCESS

    @property
    def message(self) -> str:
        """The reasons, joined."""
        return ", ".join(self.reasons)


SUCCESS = Status()
SKIP = Status(Code.SKIP)


def unschedulable(*reasons: str) -> Status:
    """Return a no that preemption may turn."""
    return Status(Code.UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> Status:
    """Return a no that preemption cannot turn."""
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons)


def failed(*reasons: str) -> Status:
    """Return an error."""
    return Status(Code.ERROR, reasons)


@dataclass(frozen=True, slots=True)
class PreFilterResult:
    """`node_names`: the only nodes worth looking at; None: all."""

    status: Status = SUCCESS
    node_names: tuple[str, ...] | None = None


class Refusal(msgspec.Struct, frozen=True):
    """Nodes (a mask) that a vectorised filter refused for one reason. A node may occur in several."""

    reason: str
    mask: Mask
    code: Code = Code.UNSCHEDULABLE


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """What PostFilter achieved. `nominated_node`: None keeps the nomination, "" clears it.

    `actions`: API calls to make (deletions of victims and the like), performed by the shell in order. `asks`: what
    somebody outside must be asked first; with the answer in the cycle state, PostFilter is run again.
    """

    status: Status
    nominated_node: str | None = None
    actions: tuple[Any, ...] = field(default=())
    asks: tuple[Any, ...] = ()


class Plugin(Protocol):
    """The least a plugin is."""

    name: str


@runtime_checkable
class EnqueueExtensions(Protocol):
    """Which events may change this plugin's no."""

    def events_to_register(self) -> Sequence[Registration]: ...


@runtime_checkable
class PreEnqueuePlugin(Protocol):
    """Says whether a pod may enter the active queue; a no gates it."""

    name: str

    def pre_enqueue(self, pod: PodInfo) -> Status: ...


@runtime_checkable
class ExplainsGate(Protocol):
    """Says what users should read of its no at PreEnqueue, "" for nothing (KEP-5501, explicit models)."""

    name: str

    def gate_message(self, pod: PodInfo, status: Status) -> str: ...


@runtime_checkable
class QueueSortPlugin(Protocol):
    """Orders the active queue: smaller comes first. `timestamp`: when the pod (re)entered, seconds."""

    name: str

    def sort_key(self, pod: PodInfo, timestamp: float) -> tuple[float, ...]: ...


@runtime_checkable
class PreFilterPlugin(Protocol):
    """Prepares, or rejects the pod on all nodes, or narrows the nodes, or skips this plugin's Filter."""

    name: str

    def pre_filter(self, state: CycleState, pod: PodInfo, columns: Columns) -> PreFilterResult | Status: ...


@runtime_checkable
class FilterPlugin(Protocol):
    """Says whether the pod fits one node."""

    name: str

    def filter(self, pod: PodInfo, node: NodeInfo) -> Status: ...


@runtime_checkable
class StatefulFilterPlugin(Protocol):
    """As FilterPlugin, for plugins that need what their PreFilter left in the state."""

    name: str

    def filter_in(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status: ...


@runtime_checkable
class VectorFilterPlugin(Protocol):
    """Says of all nodes at once whether the pod fits, and afterwards why not.

    `filter_all` returns a mask of `columns.capacity` rows, or None when every node passes. What it says
    of rows without a node is ignored. `explain_all` returns the reasons for the rows of `refused`.
    """

    name: str

    def filter_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Mask | None: ...
    def explain_all(self, state: CycleState, pod: PodInfo, columns: Columns, refused: Mask) -> list[Refusal]: ...


@runtime_checkable
class RowPure(Protocol):
    """The answers depend only on this value of the pod and on the node's own row."""

    name: str

    def row_signature(self, pod: PodInfo) -> Hashable: ...


@runtime_checkable
class Signs(Protocol):
    """Says which pods it treats alike, on every node, although it is not row-pure (KEP-5598, Sign).

    None: it cannot tell. A filter or score that is neither row-pure nor signs keeps pods from being batched,
    unless it bows out for them.
    """

    name: str

    def sign(self, pod: PodInfo) -> Hashable | None: ...


@runtime_checkable
class PodSetPlugin(Protocol):
    """Filters whose state must follow pods that are added to or removed from a node for a what-if.

    They work on a clone of the cycle's state; what they change there must offer `clone()` (see `CycleState.clone`).
    """

    name: str

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> None: ...
    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> None: ...


class WhatIfFilters(Protocol):
    """The profile's filters, asked about a node that was changed in thought."""

    def filter_beside(self, state: CycleState, pod: PodInfo, node: NodeInfo, nominated: Sequence[PodInfo]) -> Status:
        """Return the first no for the node with the nominated pods on it, then without them; or success."""
        ...

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> None:
        """Let the state follow a pod that was put on the node."""
        ...

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> None:
        """Let the state follow a pod that was taken off the node."""
        ...

    def has_only_row_filters(self, state: CycleState) -> bool:
        """Whether, in this cycle, a node's answer depends on the pod's template and on that node alone."""
        ...


@runtime_checkable
class UsesFilters(Protocol):
    """Wants to ask the filters of the profile it belongs to; told once, when the profile is put together."""

    def use_filters(self, filters: WhatIfFilters) -> None: ...


@runtime_checkable
class PostFilterPlugin(Protocol):
    """Tries to make room after no node fitted (preemption)."""

    name: str

    def post_filter(
        self, state: CycleState, pod: PodInfo, columns: Columns, diagnosis: Diagnosis
    ) -> PostFilterResult: ...


@runtime_checkable
class ResizeInterestedPlugin(Protocol):
    """Says whether its PostFilter takes on a pod that has a node and waits there for room to grow (KEP-5836, G0)."""

    name: str

    def should_handle_deferred_resize(self, pod: PodInfo, node_name: str) -> bool: ...


@runtime_checkable
class RelevancePlugin(Protocol):
    """Says first of all whether it has anything to do with the pod; Skip keeps it out of the cycle, everywhere.

    Asked with KEP-5836's G4 only. Who does not say is relevant for pods without a node, and for no others.
    """

    name: str

    def is_relevant_for_pod(self, state: CycleState, pod: PodInfo) -> Status: ...


@runtime_checkable
class PreScorePlugin(Protocol):
    """Prepares scoring of the feasible nodes (a mask), or skips this plugin's Score."""

    name: str

    def pre_score(self, state: CycleState, pod: PodInfo, columns: Columns, feasible: Mask) -> Status: ...


@runtime_checkable
class ScorePlugin(Protocol):
    """Ranks one node; without `normalize` the score must be 0 to 100."""

    name: str

    def score(self, pod: PodInfo, node: NodeInfo) -> int: ...


@runtime_checkable
class VectorScorePlugin(Protocol):
    """Ranks all nodes at once; an int stands for the same score everywhere."""

    name: str

    def score_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Scores | int: ...


@runtime_checkable
class NormalizePlugin(Protocol):
    """Turns the raw scores of the feasible nodes into 0 to 100."""

    name: str

    def normalize(self, state: CycleState, raw: Scores | int, feasible: Mask) -> Scores | int: ...


@runtime_checkable
class ReservePlugin(Protocol):
    """Its part of assuming, and undoing it; `unreserve` must be safe to call without `reserve`."""

    name: str

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status: ...
    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


@runtime_checkable
class PermitPlugin(Protocol):
    """Allows, rejects, or makes the binding wait; with Wait, seconds to wait at most (cap 900)."""

    name: str

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> tuple[Status, float]: ...


PODS_TO_ACTIVATE: Final = "PodsToActivate"
"""Where in the cycle's state a Permit plugin leaves the keys of pods that should be tried now."""


class PlacementProgress(msgspec.Struct, frozen=True):
    """How far a group cycle is.

    `scheduled`: members with a node, those of earlier cycles too; `remaining`: members not tried yet.
    """

    scheduled: int
    remaining: int


@runtime_checkable
class PlacementFeasiblePlugin(Protocol):
    """Says after each member of a group cycle whether the group's constraint is met.

    Success: it is. Wait: not yet. Unschedulable: it cannot be any more, and the cycle ends.
    """

    name: str

    def placement_feasible(self, group: PodGroup, progress: PlacementProgress) -> Status: ...


class WaitingRoom(Protocol):
    """Pods that wait at Permit; who is not there is no mistake."""

    def allow(self, uid: str, plugin: str) -> None: ...
    def reject(self, uid: str, plugin: str, message: str) -> bool: ...


@runtime_checkable
class PreBindPlugin(Protocol):
    """What must be true in the API before the bind. Awaits API calls through the binder it is given.

    `pre_bind_pre_flight` answers Skip when there will be nothing to do (KEP-5278).
    """

    name: str

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status: ...
    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str, client: Any) -> Status: ...


class BindCall(msgspec.Struct, frozen=True):
    """The one write that makes a choice true. `expected_unbind_count` None: not a precondition."""

    node_name: str
    expected_unbind_count: int | None = None


@runtime_checkable
class BindPlugin(Protocol):
    """Says how to bind, or Skip; the shell makes the call."""

    name: str

    def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> BindCall | Status: ...


@runtime_checkable
class PostBindPlugin(Protocol):
    """Told after the bind succeeded."""

    name: str

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...
