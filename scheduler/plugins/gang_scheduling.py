"""PreEnqueue, PlacementFeasible and Permit: a gang is bound when enough of its members can be, or not at all.

The enforcement of the quorum changed over generations (switch `gang.generation`): W0 lets each placed
member wait at Permit for the others; W1 places the group in one cycle and calls Permit; W2 calls
PlacementFeasible and keeps Permit as a last barrier; W3 has no Permit. Source: preemption 6.3; upstream
`pkg/scheduler/framework/plugins/gangscheduling`.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from scheduler.cache.node_info import PodInfo
from scheduler.cache.pod_group_membership import group_of
from scheduler.entry import Args, Handle, PluginEntry
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.events import ASSIGNED_POD, UNSCHEDULED_POD, Action, ClusterEvent, Hint, Registration, queue_if
from scheduler.framework.plugin import PODS_TO_ACTIVATE
from scheduler.framework.proposal_points import PlacementProgress
from scheduler.framework.status import SUCCESS, Code, Status, unresolvable, unschedulable
from scheduler.switches import GangSwitches
from services.api.kinds.pod import Pod
from services.api.kinds.podgroup import PodGroup
from services.api.meta import Key

NAME: Final = "GangScheduling"
INCOMPLETE: Final = "waiting for minCount pods from a gang to appear in scheduling queue"
W0_WAITS: Final = "waiting for minCount pods from a gang to be waiting on permit"
W1_WAITS: Final = "waiting for minCount pods from a gang to be scheduled"
GIVEN_UP: Final = "another pod of the gang was rejected while waiting on permit"
POD_GROUP: Final = "PodGroup"
QUORUM_DELAY_S: Final = 15.0
"""Seconds that a quorum may be missing before that is reported, where plugins choose delays.

Members come in batches that a Job doubles; a group that is missing was mostly forgotten. The numbers are
our own: KEP-5501's review asks for delays of plugins and gives none.
"""
GROUP_DELAY_S: Final = 2.0


class GangScheduling:
    """The plugin for gangs; a member waits at Permit for `gang.permit_timeout_s` at most."""

    name = NAME
    gate_delay_s = QUORUM_DELAY_S

    def __init__(self, args: Args, handle: Handle) -> None:
        self._handle = handle
        switches = handle.switches.of(GangSwitches)
        self._generation, self._timeout_s = switches.generation, switches.permit_timeout_s

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Hold members back until their group exists and, for a gang, enough members do."""
        key = group_of(pod.pod)
        if key is None or self._generation == "off":
            return SUCCESS
        group = self._handle.world.get(PodGroup, key)
        if group is None:
            return unresolvable(f'waiting for pods\'s pod group "{key.name}" to appear in scheduling queue')
        if group.spec.is_gang and self._handle.groups.count_members(key) < group.spec.min_count:
            return unresolvable(INCOMPLETE)
        return SUCCESS

    def gate_message(self, pod: PodInfo, status: Status) -> str:
        """Return the message for users: they have to create the missing members or group (kep-5501 6)."""
        return status.message

    def delay_of_gate(self, pod: PodInfo, status: Status) -> float:
        """Return the report's delay: a quorum mostly fills up by itself; a missing group does not appear by itself."""
        return QUORUM_DELAY_S if status.message == INCOMPLETE else GROUP_DELAY_S

    def events_to_register(self) -> Sequence[Registration]:
        """Return the events: another member comes, the group comes, or it requires fewer members."""
        return (
            Registration(ClusterEvent(UNSCHEDULED_POD, Action.ADD), _is_of_the_group),
            Registration(ClusterEvent(ASSIGNED_POD, Action.ADD), _is_of_the_group),
            Registration(ClusterEvent(POD_GROUP, Action.ADD), _is_the_group),
            Registration(ClusterEvent(POD_GROUP, Action.UPDATE_OTHER), _asks_for_fewer),
        )

    def placement_feasible(self, group: PodGroup, progress: PlacementProgress) -> Status:
        """Return, after each member, whether enough are placed: success, not yet (Wait), or never."""
        wanted, scheduled, left = group.spec.min_count, progress.scheduled, progress.remaining
        if scheduled >= wanted:
            return SUCCESS
        if self._generation == "W1":
            return Status(Code.WAIT, (W1_WAITS,))
        if scheduled + left < wanted:
            return unschedulable(f"minCount ({wanted}) cannot be satisfied: {scheduled} scheduled, {left} remaining")
        text = f"minCount ({wanted}) is not yet satisfied: {scheduled} scheduled, {left} remaining"
        return Status(Code.WAIT, (text,))

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> tuple[Status, float]:
        """Let the member wait until enough of its gang have a node; the member that completes it allows all."""
        key = group_of(pod.pod)
        group = self._handle.world.get(PodGroup, key) if key is not None else None
        if key is None or group is None or not group.spec.is_gang or self._generation in ("W3", "off"):
            return SUCCESS, 0.0
        if sum(1 for _ in self._with_node(key)) >= group.spec.min_count:
            for uid in self._with_node(key):
                self._handle.waiting.allow(uid, self.name)
            return SUCCESS, 0.0
        if self._generation != "W0":
            return Status(Code.WAIT, (W1_WAITS,)), self._timeout_s
        state.data[PODS_TO_ACTIVATE] = tuple(self._handle.groups.waiting(key, self._handle.cache.pods))
        return Status(Code.WAIT, (W0_WAITS,)), self._timeout_s

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Reserve nothing: the plugin only needs `unreserve`."""
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Reject the waiting members when one of them is rejected: without it they would wait in vain."""
        key = group_of(pod.pod)
        if key is None or self._generation != "W0":
            return
        for uid in self._with_node(key):
            if uid != pod.uid:
                self._handle.waiting.reject(uid, self.name, GIVEN_UP)

    def _with_node(self, key: Key) -> Iterator[str]:
        pods = self._handle.cache.pods
        return (uid for uid in self._handle.groups.uids(key) if uid in pods)


def _is_of_the_group(pod: PodInfo, old: Pod | None, new: Pod | None) -> Hint:
    mine = group_of(pod.pod)
    return queue_if(mine is not None and new is not None and group_of(new) == mine)


def _is_the_group(pod: PodInfo, old: PodGroup | None, new: PodGroup | None) -> Hint:
    return queue_if(new is not None and group_of(pod.pod) == new.metadata.key)


def _asks_for_fewer(pod: PodInfo, old: PodGroup | None, new: PodGroup | None) -> Hint:
    if old is None or new is None or not (old.spec.is_gang and new.spec.is_gang):
        return Hint.SKIP
    return _is_the_group(pod, None, new) if new.spec.min_count < old.spec.min_count else Hint.SKIP


PLUGIN = PluginEntry(NAME, GangScheduling)
