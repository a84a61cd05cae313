"""Filter: on nodes that align, one NUMA node must have capacity for each container, or for the pod.

It follows kubernetes-sigs/scheduler-plugins' plugin of this name for the policy single-numa-node; other
policies are not checked. A node is known by its NodeResourceTopology, and pods that it does not include yet
are

    - forgotten (`nrt_stale`), as without a cache: bursts of rejections until the next report;
    - charged to every zone (`nrt_overreserve`): no zone is given twice, and some pods wait that would have
      fitted;
    - charged to the zone that the kubelet will choose (`oracle`), which also reports each change at once.

The kubelet's rules decide what a container needs of a zone, and what it may reuse from init containers
before it. Source: kubelet-unbinding 1.1 (`numa_scheduler`).
"""

from collections.abc import Sequence
from typing import Final

from scheduler.cache.columns import Columns
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.entry import Args, Handle, PluginEntry
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.events import ASSIGNED_POD, Action, ClusterEvent, Registration
from scheduler.framework.status import SKIP, SUCCESS, Status, unschedulable
from scheduler.switches import WorldSwitches
from services.api.kinds.noderesourcetopology import COUNTED_PODS, POLICY, SCOPE, NodeResourceTopology
from services.api.kinds.pod import Pod
from services.api.numa import Need, container_need, has_pod_level, is_memory, pod_need
from services.api.podresources import Amounts, qos_class
from services.api.quantity import amount
from services.reconcile.controller import Change

NAME: Final = "NodeResourceTopologyMatch"
CANNOT_ALIGN: Final = "cannot align {}"
_MILLI: Final = 1000


class _ZoneReport:
    """One node's report, parsed. `zones`: the resources left in each zone, cpu in whole CPUs."""

    def __init__(self, report: NodeResourceTopology) -> None:
        self.is_aligning = report.attribute(POLICY) == "single-numa-node"
        self.by_pod = report.attribute(SCOPE) == "pod"
        self.counted = frozenset(filter(None, report.attribute(COUNTED_PODS).split(",")))
        self.zones: list[Amounts] = [
            {each.name: _whole(each.name, amount(each.name, each.available)) for each in zone.resources}
            for zone in report.zones
        ]


class NodeResourceTopologyMatch:
    """The plugin, by `numa_scheduler`: nrt_stale, nrt_overreserve or oracle."""

    name = NAME

    def __init__(self, args: Args, handle: Handle) -> None:
        knowledge = handle.switches.of(WorldSwitches).numa_scheduler
        # A profile that names the plugin itself has it work as upstream's does.
        self._knowledge = "nrt_overreserve" if knowledge == "none" else knowledge
        self._known: dict[str, _ZoneReport] = {}
        for report in handle.world.all(NodeResourceTopology):
            self._on_changed(Change(None, report))
        handle.world.on_change(NodeResourceTopology, self._on_changed)

    def _on_changed(self, change: Change[NodeResourceTopology]) -> None:
        name = change.object.metadata.name
        if change.new is None:
            self._known.pop(name, None)
        else:
            self._known[name] = _ZoneReport(change.new)

    def pre_filter(self, state: CycleState, pod: PodInfo, columns: Columns) -> Status:
        """Skip pods without exclusive resources from a NUMA node."""
        return SUCCESS if self._known and _needs(pod.pod, by_pod=True) else SKIP

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Reject a node where the pod could not be aligned after the pods known to come before it."""
        known = self._known.get(node.name)
        if known is None or not known.is_aligning:
            return SUCCESS
        zones = [dict(zone) for zone in known.zones]
        if self._knowledge != "nrt_stale":
            for other in node.pods.values():
                if other.uid not in known.counted:
                    self._charge(zones, other.pod, by_pod=known.by_pod)
        if _place(zones, pod.pod, by_pod=known.by_pod):
            return SUCCESS
        return unschedulable(CANNOT_ALIGN.format("pod" if known.by_pod else "container"))

    def _charge(self, zones: list[Amounts], pod: Pod, *, by_pod: bool) -> None:
        if self._knowledge == "oracle":
            _place(zones, pod, by_pod=by_pod)
            return
        for need, leaves in _needs(pod, by_pod=by_pod):
            for zone in zones if not leaves else ():
                for name, n in need.items():
                    if name in zone:
                        zone[name] -= n

    def events_to_register(self) -> Sequence[Registration]:
        """Return the events: a report came, or a pod left."""
        return (
            Registration(ClusterEvent("NodeResourceTopology", Action.ADD | Action.UPDATE_OTHER)),
            Registration(ClusterEvent(ASSIGNED_POD, Action.DELETE)),
        )


def _whole(name: str, value: int) -> int:
    return value // _MILLI if name == "cpu" else value


def _needs(pod: Pod, *, by_pod: bool) -> list[tuple[Amounts, bool]]:
    """Return what is aligned as one, in the kubelet's order, and whether it is left to the containers that follow."""
    is_exclusive = not has_pod_level(pod) and qos_class(pod) == "Guaranteed"
    if by_pod:
        asked = [(pod_need(pod), False)]
    else:
        inits = [(container_need(c), c.restart_policy != "Always") for c in pod.spec.init_containers]
        asked = [*inits, *((container_need(c), False) for c in pod.spec.containers)]
    needs = [(_aligned_amounts(need, is_exclusive), leaves) for need, leaves in asked]
    return [(need, leaves) for need, leaves in needs if need]


def _aligned_amounts(need: Need, is_exclusive: bool) -> Amounts:
    """Return what comes from a NUMA node: devices, and of Guaranteed pods whole CPUs and memory."""
    own = {"cpu": need.cpus, **need.memory} if is_exclusive else {}
    return {name: n for name, n in {**need.devices, **own}.items() if n}


def _place(zones: list[Amounts], pod: Pod, *, by_pod: bool) -> bool:
    """Take what the pod needs from the zones, as the kubelet will; False when it will refuse the pod."""
    left: list[Amounts] = [{} for _ in zones]
    return all(_take(zones, left, need, leaves) for need, leaves in _needs(pod, by_pod=by_pod))


def _take(zones: list[Amounts], left: list[Amounts], need: Amounts, leaves: bool) -> bool:
    """Take the need from the first zone that has it all, as the kubelet's smallest mask; False when none has.

    `left`: what init containers that are done leave in each zone. Where there are CPUs or devices of theirs, those of
    the next container must be too. Resources that no zone knows are not aligned.
    """
    wanted = {name: n for name, n in need.items() if any(name in zone for zone in zones)}
    bound = [i for i in range(len(zones)) if any(left[i].get(name) for name in wanted if not is_memory(name))]
    for i, zone in enumerate(zones):
        has_all = all(zone.get(name, 0) + left[i].get(name, 0) >= n for name, n in wanted.items())
        if has_all and all(i == other for other in bound):
            for name, n in wanted.items():
                again = left[i].get(name, 0)
                zone[name] = zone.get(name, 0) - max(0, n - again)
                left[i][name] = max(again, n) if leaves else max(0, again - n)
            return True
    return not wanted


PLUGIN = PluginEntry(NAME, NodeResourceTopologyMatch)
