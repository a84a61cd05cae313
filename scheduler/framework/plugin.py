"""The contract of a plugin: upstream's extension points, each a protocol with the methods it calls.

A plugin is a class with a `name` that has the methods of the points it serves, and nothing else: no base class, no
registration call. `filter` and `score` are about one node and would be called for every node of every cycle; a plugin
may offer a form for all nodes at once as well (`vectorized`). Points that upstream does not have, or not yet, are in
`proposed`. Source: KEP-624; upstream `staging/src/k8s.io/kube-scheduler/framework/interface.go`.
"""

# ruff: noqa: D102  (a protocol's class docstring says what its methods do)

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from scheduler.cache.columns import Columns, Mask, Scores
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.framework.cycle_state import CycleState, Diagnosis
from scheduler.framework.events import Registration
from scheduler.framework.status import SUCCESS, Status

MAX_NODE_SCORE: Final = 100
PODS_TO_ACTIVATE: Final = "PodsToActivate"
"""The key of the cycle's state where a Permit plugin leaves the keys of pods that should be tried now."""


class Plugin(Protocol):
    """The minimum of a plugin: its name."""

    name: str


def implements(plugin: Any, protocol: Any) -> bool:
    """Return whether a plugin has the methods of a protocol: `isinstance`, which takes far longer for protocols."""
    return all(hasattr(plugin, name) for name in _members_of(protocol))


@cache
def _members_of(protocol: Any) -> tuple[str, ...]:
    names = {name for base in protocol.__mro__ for name in (*vars(base), *vars(base).get("__annotations__", ()))}
    return tuple(sorted(name for name in names if not name.startswith("_")))


@runtime_checkable
class EnqueueExtensions(Protocol):
    """The events that may change this plugin's rejection; without any, its pods are tried after every event."""

    def events_to_register(self) -> Sequence[Registration]: ...


@runtime_checkable
class PreEnqueuePlugin(Plugin, Protocol):
    """Decides whether a pod may enter the active queue; a rejection gates it."""

    def pre_enqueue(self, pod: PodInfo) -> Status: ...


@runtime_checkable
class QueueSortPlugin(Plugin, Protocol):
    """Orders the active queue: smaller comes first. `timestamp`: when the pod (re)entered, seconds."""

    def sort_key(self, pod: PodInfo, timestamp: float) -> tuple[float, ...]: ...


@dataclass(frozen=True, slots=True)
class PreFilterResult:
    """The result of PreFilter. `node_names`: the only candidate nodes; None: all."""

    status: Status = SUCCESS
    node_names: tuple[str, ...] | None = None


@runtime_checkable
class PreFilterPlugin(Plugin, Protocol):
    """Prepares, or rejects the pod on all nodes, or narrows the nodes, or skips this plugin's Filter."""

    def pre_filter(self, state: CycleState, pod: PodInfo, columns: Columns) -> PreFilterResult | Status: ...


@runtime_checkable
class PreFilterExtensions(Plugin, Protocol):
    """Updates the state of PreFilter for pods that a what-if puts on or takes off a node.

    It works on a clone of the cycle's state; data that it changes must offer `clone()` (see
    `CycleState.clone`).
    """

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> None: ...
    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> None: ...


@runtime_checkable
class FilterPlugin(Plugin, Protocol):
    """Decides whether the pod fits one node. Preemption calls it with hypothetical nodes."""

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status: ...


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """The result of PostFilter. `nominated_node`: None keeps the nomination, "" clears it.

    `actions`: evictions, performed in order by the loop that ran the cycle. `asks`: candidates that extenders
    must see first; with their answer in the cycle state, PostFilter is run again. `retry_with`: the initial
    state of another cycle of the pod, run at once; if that finds no node either, PostFilter is run again.
    """

    status: Status
    nominated_node: str | None = None
    actions: tuple[Any, ...] = field(default=())
    asks: tuple[Any, ...] = ()
    retry_with: Mapping[str, Any] | None = None


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
    """Reserves for an assumed pod, and undoes that; `unreserve` must be safe to call without `reserve`."""

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status: ...
    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


@runtime_checkable
class PermitPlugin(Plugin, Protocol):
    """Allows, rejects, or makes the binding wait; with Wait, seconds to wait at most (cap 900)."""

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> tuple[Status, float]: ...


@runtime_checkable
class PreBindPlugin(Plugin, Protocol):
    """Prepares in the API what must be true before the bind, with the `client` it is given.

    `pre_bind_pre_flight` answers Skip when there will be nothing to do (KEP-5278).
    """

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status: ...
    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str, client: Any) -> Status: ...


class BindCall(msgspec.Struct, frozen=True):
    """The write that binds a pod. `expected_unbind_count` None: not a precondition."""

    node_name: str
    expected_unbind_count: int | None = None


@runtime_checkable
class BindPlugin(Plugin, Protocol):
    """Returns the bind call, or Skip; the binder makes the call."""

    def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> BindCall | Status: ...


@runtime_checkable
class PostBindPlugin(Plugin, Protocol):
    """Is informed that the bind succeeded."""

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...
