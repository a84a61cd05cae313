"""Filter: on a node that aligns, only where one NUMA node still has room for each container, or for the pod.

Follows kubernetes-sigs/scheduler-plugins' plugin of this name for the policy single-numa-node; other policies are
not judged. What is known of a node is its NodeResourceTopology, and pods that it does not include yet are
- forgotten (`nrt_stale`), as without a cache: bursts of rejections until the next report;
- charged to every zone (`nrt_overreserve`): no zone is promised twice, and some pods wait that would have fitted;
- charged to the zone that the kubelet will choose (`oracle`), which also reports each change at once.
Source: kubelet-unbinding 1.1 (`numa_scheduler`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.columns import Columns
from scheduler.entry import PluginEntry
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.events import ASSIGNED_POD, Action, ClusterEvent, Registration
from scheduler.framework.interface import SKIP, SUCCESS, Status, unschedulable
from scheduler.handle import Handle
from scheduler.node_info import NodeInfo, PodInfo
from scheduler.world import World
from services.api.kinds.noderesourcetopology import COUNTED_PODS, POLICY, SCOPE, NodeResourceTopology
from services.api.kinds.pod import Pod
from services.api.podresources import Amounts, container_requests, pod_requests, qos_class
from services.api.quantity import amount
from services.reconcile.controller import Change

NAME: Final = "NodeResourceTopologyMatch"
CANNOT_ALIGN: Final = "cannot align {}"
_MILLI: Final = 1000
_NOT_ALIGNED: Final = frozenset(("memory", "ephemeral-storage", "pods"))


class _Known:
    """One node's report, parsed. `zones`: what each zone has left, cpu in whole CPUs."""

    def __init__(self, report: NodeResourceTopology) -> None:
        self.is_aligning = report.attribute(POLICY) == "single-numa-node"
        self.by_pod = report.attribute(SCOPE) == "pod"
        self.counted = frozenset(filter(None, report.attribute(COUNTED_PODS).split(",")))
        self.zones: list[Amounts] = [
            {each.name: _whole(each.name, amount(each.name, each.available)) for each in zone.resources}
            for zone in report.zones
        ]


class NodeResourceTopologyMatch:
    """`knowledge`: nrt_stale, nrt_overreserve or oracle."""

    name = NAME

    def __init__(self, world: World, *, knowledge: str) -> None:
        self._knowledge = knowledge
        self._known: dict[str, _Known] = {}
        for report in world.all(NodeResourceTopology):
            self._changed(Change(None, report))
        world.on_change(NodeResourceTopology, self._changed)

    def _changed(self, change: Change[NodeResourceTopology]) -> None:
        name = change.object.metadata.name
        if change.new is None:
            self._known.pop(name, None)
        else:
            self._known[name] = _Known(change.new)

    def pre_filter(self, state: CycleState, pod: PodInfo, columns: Columns) -> Status:
        """Skip pods that get nothing of their own from a NUMA node."""
        if not self._known or not _aligned(pod.pod, pod_requests(pod.pod)):
            return SKIP
        return SUCCESS

    def filter(self, pod: PodInfo, node: NodeInfo) -> Status:
        """Say no where the pod could not be aligned after those that are known to come first."""
        known = self._known.get(node.name)
        if known is None or not known.is_aligning:
            return SUCCESS
        zones = [dict(zone) for zone in known.zones]
        if self._knowledge != "nrt_stale":
            for other in node.pods.values():
                if other.uid not in known.counted:
                    self._charge(zones, other.pod, by_pod=known.by_pod)
        if all(_take(zones, need) for need in _needs(pod.pod, by_pod=known.by_pod)):
            return SUCCESS
        return unschedulable(CANNOT_ALIGN.format("pod" if known.by_pod else "container"))

    def _charge(self, zones: list[Amounts], pod: Pod, *, by_pod: bool) -> None:
        for need in _needs(pod, by_pod=by_pod):
            if self._knowledge == "oracle":
                _take(zones, need)
            else:
                for zone in zones:
                    _subtract(zone, need)

    def events_to_register(self) -> Sequence[Registration]:
        """A report came, or a pod left."""
        return (
            Registration(ClusterEvent("NodeResourceTopology", Action.ADD | Action.UPDATE_OTHER)),
            Registration(ClusterEvent(ASSIGNED_POD, Action.DELETE)),
        )


def _whole(name: str, value: int) -> int:
    return value // _MILLI if name == "cpu" else value


def _aligned(pod: Pod, requests: Amounts) -> Amounts:
    """Return what comes from a NUMA node: exclusive CPUs of Guaranteed pods, and whatever is no plain resource."""
    found = {name: n for name, n in requests.items() if n > 0 and name not in _NOT_ALIGNED and name != "cpu"}
    milli = requests.get("cpu", 0)
    if milli and milli % _MILLI == 0 and qos_class(pod) == "Guaranteed":
        found["cpu"] = milli // _MILLI
    return found


def _needs(pod: Pod, *, by_pod: bool) -> list[Amounts]:
    """Return what is aligned as one, in the kubelet's order; of plain init containers only what nobody reuses."""
    if by_pod:
        return [_aligned(pod, pod_requests(pod))]
    lasting = (c for c in (*pod.spec.init_containers, *pod.spec.containers) if _lasts(pod, c.name))
    return [need for container in lasting if (need := _aligned(pod, container_requests(container)))]


def _lasts(pod: Pod, name: str) -> bool:
    return all(c.name != name or c.restart_policy == "Always" for c in pod.spec.init_containers)


def _take(zones: list[Amounts], need: Amounts) -> bool:
    """Take the need from the first zone that has it all, as the kubelet's smallest mask; False when none has.

    Resources that no zone knows are not aligned.
    """
    wanted = {name: n for name, n in need.items() if any(name in zone for zone in zones)}
    for zone in zones:
        if all(zone.get(name, 0) >= n for name, n in wanted.items()):
            _subtract(zone, wanted)
            return True
    return not wanted


def _subtract(zone: Amounts, need: Amounts) -> None:
    for name, n in need.items():
        if name in zone:
            zone[name] -= n


def _make(args: object, handle: Handle) -> NodeResourceTopologyMatch:
    knowledge = handle.switches.choice("numa_scheduler")
    # A profile that names the plugin itself has it work as upstream's does.
    return NodeResourceTopologyMatch(handle.world, knowledge="nrt_overreserve" if knowledge == "none" else knowledge)


PLUGIN = PluginEntry(NAME, _make)
