"""Points of proposals: KEP-4671 (PlacementFeasible), KEP-5501 (a gate's message), KEP-5836 (deferred resizes)."""

# ruff: noqa: D102  (a protocol's class docstring says what its methods do)

from typing import Protocol, runtime_checkable

import msgspec

from scheduler.cache.node_info import PodInfo
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import Plugin
from scheduler.framework.status import Status
from services.api.kinds.podgroup import PodGroup


@runtime_checkable
class ExplainsGate(Plugin, Protocol):
    """Returns the message of its PreEnqueue rejection for users, "" for none (KEP-5501, explicit models)."""

    def gate_message(self, pod: PodInfo, status: Status) -> str: ...


@runtime_checkable
class DelaysGateReport(Plugin, Protocol):
    """Returns how long a PreEnqueue rejection should last before it is reported (KEP-5501, `delay_scope`).

    `gate_delay_s` is for all of its rejections, `delay_of_gate` for each.
    """

    gate_delay_s: float

    def delay_of_gate(self, pod: PodInfo, status: Status) -> float: ...


@runtime_checkable
class ResizeInterestedPlugin(Plugin, Protocol):
    """Decides whether its PostFilter handles a pod that waits on its node for capacity to grow (KEP-5836, G0)."""

    def should_handle_deferred_resize(self, pod: PodInfo, node_name: str) -> bool: ...


@runtime_checkable
class RelevancePlugin(Plugin, Protocol):
    """Decides first of all whether it concerns the pod; Skip keeps it out of the cycle, at every point.

    Called with KEP-5836's G4 only. A plugin without this method concerns pods without a node, and no others.
    """

    def is_relevant_for_pod(self, state: CycleState, pod: PodInfo) -> Status: ...


class PlacementProgress(msgspec.Struct, frozen=True):
    """The progress of a group cycle.

    `scheduled`: members with a node, those of earlier cycles too; `remaining`: members not tried yet.
    """

    scheduled: int
    remaining: int


@runtime_checkable
class PlacementFeasiblePlugin(Plugin, Protocol):
    """Decides after each member of a group cycle whether the group's constraint is met.

    Success: it is. Wait: not yet. Unschedulable: it cannot be any more, and the cycle ends.
    """

    def placement_feasible(self, group: PodGroup, progress: PlacementProgress) -> Status: ...
