"""Mark a silent node as Unknown and taint it; mark its pods as not ready.

Silence is measured on this controller's own clock, from the changes it observes; the nodes' clocks are never
compared with it. Before a node is declared silent its Lease is read live, so that a controller that was itself
cut off blames no node; after such an outage each node has a full grace period again (FM-W4).
The key `("", "")` is the scan; `("", node)` adapts one node's NoSchedule taints to its conditions.
Source: kubelet 2.3, kubelet-unbinding 8; upstream `pkg/controller/nodelifecycle/node_lifecycle_controller.go`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from services.api.kinds.lease import Lease
from services.api.kinds.node import Node, Taint
from services.api.kinds.pod import Pod
from services.api.meta import Condition, Document, Key, View, condition_status, find_condition
from services.api.switches import Switches
from services.api.taints import NO_EXECUTE, NO_SCHEDULE
from services.api.times import format_time
from services.controllers.node_lifecycle.zones import Zones
from services.controllers.shared_pods import BY_NODE, PodsBy, is_ready
from services.controllers.shared_switches import NodeSwitches
from services.reconcile import conditions, writes
from services.reconcile.actions import NOTHING, Action, Patch, Query, RecordEvent, Result, event
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch
from services.reconcile.interest import Interest

LEASE_NAMESPACE = "kube-node-lease"
MONITOR_PERIOD_S = 5.0
"""Interval in seconds between scans of the nodes (upstream's --node-monitor-period)."""
STARTUP_GRACE_S = 60.0
"""Grace in seconds for a node without a Ready condition; never shorter than `node.grace_s`."""
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
EXCLUDE = "node.kubernetes.io/exclude-disruption"
REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
_REPORTED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
_PRESSURES = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
_OWN_NO_SCHEDULE = (NOT_READY, UNREACHABLE, UNSCHEDULABLE, *_PRESSURES.values())
_LEASES = Query(Lease, Key(LEASE_NAMESPACE, ""))


@dataclass
class _Health:
    """Last observed state of a node. `seen_s`: monotonic time of its last change."""

    seen_s: float
    uid: str
    renew_time: str | None = None
    heartbeat: str | None = None
    was_ready: bool = False
    owes_pods: bool = False
    """The node stopped being ready and not all of its pods say so yet."""


class NodeLifecycle:
    """Health of all nodes, the zones, and the reconcile function."""

    def __init__(self, switches: Switches) -> None:
        self._grace_s = switches.of(NodeSwitches).grace_s
        self._placement = PodsBy(BY_NODE)
        self._health: dict[str, _Health] = {}
        self._zones = Zones()
        self._asked_live = False
        """A live read was asked for and its answer has not come: the server could not be reached."""
        self._was_cut_off = False
        self._news: list[RecordEvent] = []
        """Nodes that came or went, to be reported by the next look that needs no live read."""

    def pod_changed(self, change: Change[Pod], listers: Listers) -> list[Key]:
        """Track the pods of each node."""
        self._placement.note(change.old, change.new)
        return []

    @staticmethod
    def node_changed(change: Change[Node], listers: Listers) -> list[Key]:
        """Return the node if its NoSchedule taints may differ from its conditions."""
        new = change.new
        is_fine = new is None or _wanted_no_schedule(new) == _own_no_schedule(new)
        return [] if is_fine else [change.object.metadata.key]

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Scan all nodes, or update one node's NoSchedule taints."""
        if key.name:
            node = listers.of(Node).get(key)
            return _with_no_schedule(node) if node is not None else NOTHING
        return self._scan(listers, moment)

    def _scan(self, listers: Listers, moment: Moment) -> Result:
        if self._asked_live and _LEASES not in moment.listed:
            self._was_cut_off = True
        nodes = listers.of(Node).all()
        self._news += self._look(nodes, listers, moment.now_s)
        silent = [node for node in nodes if self._is_silent(node, moment.now_s)]
        if silent:
            queries = (_LEASES, *(Query(Node, n.metadata.key) for n in silent if self._lease(n, listers) is None))
            if any(q not in moment.listed and q not in moment.live for q in queries):
                self._asked_live = True
                return Result(refresh=queries)
            silent = self._still_silent(silent, moment)
        if _LEASES in moment.listed or not silent:
            self._asked_live = False
        if self._was_cut_off:
            # Our own outage: what looks silent may only be what did not reach us.
            self._was_cut_off = False
            self._start_over(moment.now_s)
            silent = []
        # Taints first: a token was taken for them, and what fails stops what comes after it.
        actions: list[Action] = [*self._news, *self._taint(nodes, moment)]
        self._news = []
        actions += [_declared_unknown(node, moment.wall_s) for node in silent]
        actions += self._pods_not_ready(nodes, silent, listers, moment.wall_s)
        return Result(tuple(actions))

    def _look(self, nodes: list[Node], listers: Listers, now_s: float) -> list[RecordEvent]:
        """Note which nodes gave a sign of life since the last look; return the Events of those that came or went."""
        before, self._health = self._health, {}
        news: list[RecordEvent] = []
        for node in nodes:
            name, ready = node.metadata.name, find_condition(node.status.conditions, "Ready")
            renewed, beat = _signs(self._lease(node, listers), node)
            if (health := before.pop(name, None)) is None:
                health = _Health(now_s, node.metadata.uid, renewed, beat, node.is_ready)
                news.append(_of_node(name, health.uid, "RegisteredNode", f"Registered Node {name} in Controller"))
            if renewed != health.renew_time and renewed is not None:
                health.seen_s, health.renew_time = now_s, renewed
            # Our own write of Unknown keeps the heartbeat time, so it is no sign of life.
            if beat != health.heartbeat and ready is not None and ready.status != "Unknown":
                health.seen_s = now_s
            health.heartbeat = beat
            self._health[name] = health
        for name, gone in before.items():
            news.append(_of_node(name, gone.uid, "RemovingNode", f"Removing Node {name} from Controller"))
        return news

    @staticmethod
    def _lease(node: Node, listers: Listers) -> Lease | None:
        return listers.of(Lease).get(Key(LEASE_NAMESPACE, node.metadata.name))

    def _is_silent(self, node: Node, now_s: float) -> bool:
        """Whether the grace period is over and the node's conditions do not say so yet."""
        ready = find_condition(node.status.conditions, "Ready")
        grace_s = max(STARTUP_GRACE_S, self._grace_s) if ready is None else self._grace_s
        if now_s - self._health[node.metadata.name].seen_s <= grace_s:
            return False
        return any(c is None or c.status != "Unknown" for c in _reported_conditions(node))

    def _still_silent(self, silent: list[Node], moment: Moment) -> list[Node]:
        """Return those whose live Lease, or live status, shows nothing new either."""
        leases = {lease.metadata.name: lease for lease in moment.listed.get(_LEASES, ()) if isinstance(lease, Lease)}
        nodes: list[Node] = []
        for node in silent:
            health = self._health[node.metadata.name]
            renewed, beat = _signs(leases.get(node.metadata.name), moment.live.get(Query(Node, node.metadata.key)))
            if renewed is not None and renewed != health.renew_time:
                health.seen_s, health.renew_time = moment.now_s, renewed
            elif beat is not None and beat != health.heartbeat:
                health.seen_s, health.heartbeat = moment.now_s, beat
            else:
                nodes.append(node)
        return nodes

    def _start_over(self, now_s: float) -> None:
        for health in self._health.values():
            health.seen_s = now_s

    def _pods_not_ready(self, nodes: list[Node], silent: list[Node], listers: Listers, wall_s: float) -> list[Action]:
        """Set Ready=False on the pods of nodes that stopped being ready, until all say so."""
        declared = {node.metadata.name for node in silent}
        actions: list[Action] = []
        for node in nodes:
            name = node.metadata.name
            health = self._health[name]
            ready = node.is_ready and name not in declared
            if health.was_ready and not ready:
                actions.append(event(node, "NodeNotReady", f"Node {name} status is now: NodeNotReady"))
                health.owes_pods = True
            health.was_ready = ready
            if ready:
                health.owes_pods = False
            if health.owes_pods:
                updates = list(self._not_ready_pods(node, listers, wall_s))
                health.owes_pods = bool(updates)  # they are looked at once more in the next round
                actions += updates
        return actions

    def _not_ready_pods(self, node: Node, listers: Listers, wall_s: float) -> Iterable[Action]:
        for key in self._placement.of(node.metadata.name):
            pod = listers.of(Pod).get(key)
            if pod is None or pod.spec.node_name != node.metadata.name or pod.is_terminal or not is_ready(pod):
                continue
            # The reason and the message stay those of the kubelet. On the version seen: a pod that was unbound or has
            # reported since is left alone.
            condition = {"type": "Ready", "status": "False", "lastTransitionTime": format_time(wall_s)}
            yield writes.conditions("pods", pod, condition, on_version=True)
            yield event(pod, "NodeNotReady", "Node is not ready", warns=True)

    def _taint(self, nodes: list[Node], moment: Moment) -> list[Action]:
        """Swap, remove and, at the zones' rates, add NoExecute taints."""
        ready_by_zone: dict[str, list[bool]] = {}
        for node in nodes:
            counted = ready_by_zone.setdefault(_zone(node), [])
            if EXCLUDE not in node.metadata.labels:
                counted.append(node.is_ready)
        if self._zones.update(ready_by_zone, moment.now_s):
            # A node is back: the silence of the others was perhaps ours. A fresh grace period for all.
            self._start_over(moment.now_s)
        actions: list[Action] = []
        known = {node.metadata.name: node for node in nodes}
        for node in nodes:
            wanted, present = _wanted_no_execute(node), _own_no_execute(node)
            if wanted == "" or self._zones.is_master_disruption:
                self._zones.unqueue(node.metadata.name)
                if present:
                    actions.append(_with_no_execute(node, "", moment.wall_s))
            elif present and present != (wanted,):
                actions.append(_with_no_execute(node, wanted, moment.wall_s))
            elif not present:
                self._zones.queue(_zone(node), node.metadata.name)
        due = [known[name] for name in self._zones.due(moment.now_s) if name in known]
        return actions + [_with_no_execute(node, _wanted_no_execute(node), moment.wall_s) for node in due]


def _of_node(name: str, uid: str, reason: str, text: str) -> RecordEvent:
    """Return an Event of the node as such (upstream `RecordNodeEvent`); it may be gone."""
    return RecordEvent("Node", "v1", Key("", name), uid, reason, f"Node {name} event: {text}")


def _signs(lease: Lease | None, node: View | None) -> tuple[str | None, str | None]:
    """Return when the lease was renewed, and when the node's status last reported that it is ready or not."""
    ready = find_condition(node.status.conditions, "Ready") if isinstance(node, Node) else None
    return lease.spec.renew_time if lease else None, ready.last_heartbeat_time if ready else None


def _zone(node: Node) -> str:
    labels = node.metadata.labels
    return f"{labels.get(REGION, '')}/{labels.get(ZONE, '')}"


def _reported_conditions(node: Node) -> list[Condition | None]:
    """Return the conditions a kubelet reports; None for one that is missing."""
    return [find_condition(node.status.conditions, kind) for kind in _REPORTED]


def _declared_unknown(node: Node, wall_s: float) -> Patch:
    """Return the write that sets what the kubelet reports to Unknown."""
    unknown: list[Document] = []
    for kind, old in zip(_REPORTED, _reported_conditions(node), strict=True):
        if old is None:
            reason_and_message = "NodeStatusNeverUpdated", "Kubelet never posted node status."
            unknown.append(conditions.new(kind, "Unknown", *reason_and_message, wall_s))
            beat, since = node.metadata.creation_timestamp, unknown[-1].pop("lastTransitionTime")
            unknown[-1] |= {"lastHeartbeatTime": beat, "lastTransitionTime": since}
        elif old.status != "Unknown":
            reason_and_message = "NodeStatusUnknown", "Kubelet stopped posting node status."
            unknown.append(conditions.new(kind, "Unknown", *reason_and_message, wall_s))
    # On the version seen: a kubelet that has just reported is not silent.
    return writes.conditions("nodes", node, *unknown, on_version=True)


def _wanted_no_schedule(node: Node) -> tuple[str, ...]:
    """Return the keys of the NoSchedule taints that the node's conditions and spec ask for, sorted."""
    node_conditions = node.status.conditions
    wanted = [taint for kind, taint in _PRESSURES.items() if condition_status(node_conditions, kind) == "True"]
    if not node.is_ready:
        wanted.append(UNREACHABLE if condition_status(node_conditions, "Ready") == "Unknown" else NOT_READY)
    if node.spec.unschedulable:
        wanted.append(UNSCHEDULABLE)
    return tuple(sorted(wanted))


def _own_no_schedule(node: Node) -> tuple[str, ...]:
    return tuple(sorted(t.key for t in node.spec.taints if t.effect == NO_SCHEDULE and t.key in _OWN_NO_SCHEDULE))


def _with_no_schedule(node: Node) -> Result:
    wanted = _wanted_no_schedule(node)
    if wanted == _own_no_schedule(node):
        return NOTHING
    kept = [t for t in node.spec.taints if not (t.effect == NO_SCHEDULE and t.key in _OWN_NO_SCHEDULE)]
    old = {t.key: t for t in node.spec.taints if t.effect == NO_SCHEDULE}
    new = [old.get(key, Taint(key=key, effect=NO_SCHEDULE)) for key in wanted]
    return Result((_taints(node, [*kept, *new]),))


def _wanted_no_execute(node: Node) -> str:
    """Return the key of the NoExecute taint the node should have in the end, or ""."""
    return {"Unknown": UNREACHABLE, "False": NOT_READY}.get(condition_status(node.status.conditions, "Ready"), "")


def _own_no_execute(node: Node) -> tuple[str, ...]:
    return tuple(t.key for t in node.spec.taints if t.effect == NO_EXECUTE and t.key in (NOT_READY, UNREACHABLE))


def _with_no_execute(node: Node, key: str, wall_s: float) -> Patch:
    kept = [t for t in node.spec.taints if not (t.effect == NO_EXECUTE and t.key in (NOT_READY, UNREACHABLE))]
    if key:
        kept.append(Taint(key=key, effect=NO_EXECUTE, time_added=format_time(wall_s)))
    return _taints(node, kept)


def _taints(node: Node, taints: list[Taint]) -> Patch:
    # The list is replaced whole, so only on the version it was read from; an empty one is none (omitempty).
    change = {"spec": {"taints": [msgspec.to_builtins(taint) for taint in taints] or None}}
    return writes.patch("nodes", node, change, on_version=True)


def _build(switches: Switches) -> Controller:
    memory = NodeLifecycle(switches)
    watches = (Watch(Pod, memory.pod_changed, Interest(changes=("spec.node_name",))), Watch(Node, memory.node_changed))
    return Controller(
        "node-lifecycle",
        None,
        memory.reconcile,
        watches=watches,
        reads=(Lease,),
        period_s=MONITOR_PERIOD_S,
        workers=8,
        reporter="node-controller",
    )


CONTROLLER = Registration("node-lifecycle", _build, start_order=8)
