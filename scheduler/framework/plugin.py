"""The contract of a plugin: upstream's extension points, each a protocol with the methods it calls.

A plugin is a class with a `name` that has the methods of the points it serves, and nothing else: no base class, no
registration call. `filter` and `score` are about one node and would be called for every node of every cycle; a plugin
may offer a form for all nodes at once as well (`Vector…`), a mask or an array over the columns, which keeps cycles
short at thousands of nodes. A property test holds the two of every built-in equal. Points of proposals, which upstream
does not have, or not yet, stand at the end.

What they leave each other (`CycleState`) and what comes of their refusals (`Diagnosis`) stands first.
Source: KEP-624; upstream `staging/src/k8s.io/kube-scheduler/framework/interface.go`. Of proposals: KEP-4671
(PlacementFeasible), KEP-5501 (a gate's message), KEP-5836 (deferred resizes).
"""

# ruff: noqa: D102  (a protocol's class docstring says what its methods do)

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

import msgspec
import numpy as np

from scheduler.cache.columns import Columns, Mask, Scores
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.framework.events import Registration
from scheduler.framework.status import SUCCESS, Code, Status
from services.api.kinds.podgroup import PodGroup

NO_NODES_AVAILABLE: Final = "no nodes available to schedule pods"
TOO_MANY_PODS: Final = "Too many pods"
MAX_NODE_SCORE: Final = 100
PODS_TO_ACTIVATE: Final = "PodsToActivate"
"""Where in the cycle's state a Permit plugin leaves the keys of pods that should be tried now."""


class CycleState:
    """What plugins leave each other, by name, in one cycle of one pod, and what the runner itself notes.

    `skip_filter` and `skip_score` name plugins that skip this pod's Filter and Score, `irrelevant` those that have
    nothing to do with it. `alive` is, during Filter, the nodes that passed all earlier filters. `error`: why Filter
    could not be finished. Source: upstream `pkg/scheduler/framework/cycle_state.go`.
    """

    __slots__ = ("alive", "data", "error", "irrelevant", "now", "skip_filter", "skip_score")

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.data: dict[str, Any] = {}
        self.skip_filter: set[str] = set()
        self.skip_score: set[str] = set()
        self.alive: Mask | None = None
        self.error = ""
        self.irrelevant: frozenset[str] = frozenset()

    def clone(self) -> CycleState:
        """Return a copy for a what-if; values with a `clone()` of their own are copied by it, all others shared.
        What a plugin's `add_pod` and `remove_pod` change must offer `clone`."""
        copy = CycleState(self.now)
        copy.data = {name: value.clone() if hasattr(value, "clone") else value for name, value in self.data.items()}
        copy.skip_filter, copy.skip_score = set(self.skip_filter), set(self.skip_score)
        copy.alive, copy.irrelevant = self.alive, self.irrelevant
        return copy


@dataclass(slots=True)
class Diagnosis:
    """Why no node fitted. `rejected`: plugin to reason to number of nodes. `unresolvable`: rows preemption cannot help.

    `rejectors` wake the pod by their events, `pending` plugins also spare it the back-off.
    `pre_filter_message` replaces the histogram. Source: scheduler-queue-and-cycles 4.2, 12.1.
    """

    node_count: int
    rejected: dict[str, dict[str, int]] = field(default_factory=dict)
    rejectors: set[str] = field(default_factory=set)
    pending: set[str] = field(default_factory=set)
    unresolvable: Mask = field(default_factory=lambda: np.zeros(0, bool))
    pre_filter_message: str = ""
    post_filter_message: str = ""

    def count(self, plugin: str, reason: str, nodes: int) -> None:
        """Add nodes that a plugin refused for a reason."""
        reasons = self.rejected.setdefault(plugin, {})
        reasons[reason] = reasons.get(reason, 0) + nodes

    def refuse(self, plugin: str, reasons: Iterable[str], code: Code, rows: Mask) -> None:
        """Charge the nodes of these rows to a plugin; without any it is not charged."""
        nodes = int(np.count_nonzero(rows))
        if not nodes:
            return
        for reason in reasons:
            self.count(plugin, reason, nodes)
        (self.pending if code is Code.PENDING else self.rejectors).add(plugin)
        if code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            self.unresolvable |= rows

    @property
    def message(self) -> str:
        """The text of the event and of the condition: the refusal, then what PostFilter could not do about it."""
        return f"{self.refusal} {self.post_filter_message}" if self.post_filter_message else self.refusal

    @property
    def refusal(self) -> str:
        """What the filters say: `0/5 nodes are available: 2 Insufficient cpu, …`."""
        histogram: Counter[str] = Counter()
        for reasons in self.rejected.values():
            histogram.update(reasons)
        # Sorted as strings, counts included, as upstream sorts them.
        lines = sorted(f"{nodes} {reason}" for reason, nodes in histogram.items())
        why = self.pre_filter_message or ", ".join(lines)
        return f"0/{self.node_count} nodes are available:" + (f" {why}." if why else "")


@dataclass(frozen=True, slots=True)
class CycleError:
    """The cycle itself failed: a plugin's error, or no node exists. `is_rejection` for the latter."""

    message: str
    is_rejection: bool = False


class Plugin(Protocol):
    """The least a plugin is."""

    name: str


@runtime_checkable
class EnqueueExtensions(Protocol):
    """Which events may change this plugin's rejection; one that names none has its pods tried after every event."""

    def events_to_register(self) -> Sequence[Registration]: ...


@runtime_checkable
class PreEnqueuePlugin(Plugin, Protocol):
    """Says whether a pod may enter the active queue; a rejection gates it."""

    def pre_enqueue(self, pod: PodInfo) -> Status: ...


@runtime_checkable
class QueueSortPlugin(Plugin, Protocol):
    """Orders the active queue: smaller comes first. `timestamp`: when the pod (re)entered, seconds."""

    def sort_key(self, pod: PodInfo, timestamp: float) -> tuple[float, ...]: ...


@dataclass(frozen=True, slots=True)
class PreFilterResult:
    """`node_names`: the only nodes worth looking at; None: all."""

    status: Status = SUCCESS
    node_names: tuple[str, ...] | None = None


@runtime_checkable
class PreFilterPlugin(Plugin, Protocol):
    """Prepares, or rejects the pod on all nodes, or narrows the nodes, or skips this plugin's Filter."""

    def pre_filter(self, state: CycleState, pod: PodInfo, columns: Columns) -> PreFilterResult | Status: ...


@runtime_checkable
class PreFilterExtensions(Plugin, Protocol):
    """Has the state that PreFilter left follow pods that are put on or taken off a node in thought.
    They work on a clone of the cycle's state; what they change there must offer `clone()` (see `CycleState.clone`)."""

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> None: ...
    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> None: ...


@runtime_checkable
class FilterPlugin(Plugin, Protocol):
    """Says whether the pod fits one node. Preemption asks about nodes changed in thought."""

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status: ...


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """What PostFilter achieved. `nominated_node`: None keeps the nomination, "" clears it.

    `actions`: evictions, performed in order by the loop that ran the cycle. `asks`: candidates that extenders must see
    first; with their answer in the cycle state, PostFilter is run again.
    """

    status: Status
    nominated_node: str | None = None
    actions: tuple[Any, ...] = field(default=())
    asks: tuple[Any, ...] = ()


@runtime_checkable
class PostFilterPlugin(Plugin, Protocol):
    """Tries to make a node fit after none did (preemption)."""

    def post_filter(
        self, state: CycleState, pod: PodInfo, columns: Columns, diagnosis: Diagnosis
    ) -> PostFilterResult: ...


@runtime_checkable
class PreScorePlugin(Plugin, Protocol):
    """Prepares scoring of the feasible nodes (a mask), or skips this plugin's Score."""

    def pre_score(self, state: CycleState, pod: PodInfo, columns: Columns, feasible: Mask) -> Status: ...


@runtime_checkable
class ScorePlugin(Plugin, Protocol):
    """Ranks one node; without `normalize` the score must be 0 to 100."""

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int: ...


@runtime_checkable
class ScoreExtensions(Plugin, Protocol):
    """Turns the raw scores of the feasible nodes into 0 to 100."""

    def normalize(self, state: CycleState, raw: Scores | int, feasible: Mask) -> Scores | int: ...


@runtime_checkable
class ReservePlugin(Plugin, Protocol):
    """Its part of assuming, and undoing it; `unreserve` must be safe to call without `reserve`."""

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status: ...
    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


@runtime_checkable
class PermitPlugin(Plugin, Protocol):
    """Allows, rejects, or makes the binding wait; with Wait, seconds to wait at most (cap 900)."""

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> tuple[Status, float]: ...


@runtime_checkable
class PreBindPlugin(Plugin, Protocol):
    """What must be true in the API before the bind; it makes its calls with the `client` it is given.
    `pre_bind_pre_flight` answers Skip when there will be nothing to do (KEP-5278)."""

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status: ...
    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str, client: Any) -> Status: ...


class BindCall(msgspec.Struct, frozen=True):
    """The one write that makes a choice true. `expected_unbind_count` None: not a precondition."""

    node_name: str
    expected_unbind_count: int | None = None


@runtime_checkable
class BindPlugin(Plugin, Protocol):
    """Says how to bind, or Skip; the binder makes the call."""

    def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> BindCall | Status: ...


@runtime_checkable
class PostBindPlugin(Plugin, Protocol):
    """Learns that the bind succeeded."""

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


class Refusal(msgspec.Struct, frozen=True):
    """Nodes (a mask) that a vectorized filter refused for one reason. A node may occur in several."""

    reason: str
    mask: Mask
    code: Code = Code.UNSCHEDULABLE


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
class VectorScorePlugin(Protocol):
    """Ranks all nodes at once; an int stands for the same score everywhere."""

    name: str

    def score_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Scores | int: ...


@runtime_checkable
class RowPure(Protocol):
    """The answers depend only on this value of the pod and on the node's own row.
    The runner remembers them and asks again, by the form for one node, only about rows that changed."""

    def row_signature(self, pod: PodInfo) -> Hashable: ...


@runtime_checkable
class Signs(Protocol):
    """Says which pods it treats alike, on every node, although it is not row-pure (KEP-5598, Sign).

    None: it cannot say. A filter or score that is neither row-pure nor signs keeps pods from being batched,
    unless it skips for them.
    """

    def sign(self, pod: PodInfo) -> Hashable | None: ...


POINTS: Final[dict[str, tuple[Any, ...]]] = {
    "preEnqueue": (PreEnqueuePlugin,),
    "queueSort": (QueueSortPlugin,),
    "preFilter": (PreFilterPlugin,),
    "filter": (FilterPlugin, VectorFilterPlugin),
    "postFilter": (PostFilterPlugin,),
    "preScore": (PreScorePlugin,),
    "score": (ScorePlugin, VectorScorePlugin),
    "reserve": (ReservePlugin,),
    "permit": (PermitPlugin,),
    "preBind": (PreBindPlugin,),
    "bind": (BindPlugin,),
    "postBind": (PostBindPlugin,),
}
"""Any of the protocols serves the point; in the order of scheduler-queue-and-cycles 5."""

REJECTING: Final = ("preEnqueue", "preFilter", "filter", "reserve", "permit")
"""Points at which a plugin can reject a pod, which then waits for an event."""


def serves(plugin: Any, point: str) -> bool:
    """Whether the plugin has what the point calls; a point that is not in `POINTS` is served by no plugin."""
    return isinstance(plugin, POINTS.get(point, ()))


@runtime_checkable
class ExplainsGate(Plugin, Protocol):
    """Says what users should read of its rejection at PreEnqueue, "" for nothing (KEP-5501, explicit models)."""

    def gate_message(self, pod: PodInfo, status: Status) -> str: ...


@runtime_checkable
class ResizeInterestedPlugin(Plugin, Protocol):
    """Says whether its PostFilter takes on a pod that waits on its node for capacity to grow (KEP-5836, G0)."""

    def should_handle_deferred_resize(self, pod: PodInfo, node_name: str) -> bool: ...


@runtime_checkable
class RelevancePlugin(Plugin, Protocol):
    """Says first of all whether it has anything to do with the pod; Skip keeps it out of the cycle, everywhere.
    Asked with KEP-5836's G4 only. A plugin that does not say is relevant for pods without a node, and for no others."""

    def is_relevant_for_pod(self, state: CycleState, pod: PodInfo) -> Status: ...


class PlacementProgress(msgspec.Struct, frozen=True):
    """How far a group cycle is.
    `scheduled`: members with a node, those of earlier cycles too; `remaining`: members not tried yet."""

    scheduled: int
    remaining: int


@runtime_checkable
class PlacementFeasiblePlugin(Plugin, Protocol):
    """Says after each member of a group cycle whether the group's constraint is met.
    Success: it is. Wait: not yet. Unschedulable: it cannot be any more, and the cycle ends."""

    def placement_feasible(self, group: PodGroup, progress: PlacementProgress) -> Status: ...
