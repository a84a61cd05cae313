"""Report a node that unbinds more than a fifth of the pods bound to it; unbinding should be an exception.

It counts the binds and unbinds of each node over the last five minutes, from pod changes. Above 20 %, and with
five binds at least, it records a Warning on the Node; with `unbind.storm_taint` a taint keeps new pods away for
five minutes. Above 5 % over all nodes it records a Warning on the namespace kube-system: unbinding is no longer
the exception. Source: kubelet-unbinding 9.
"""

from collections import deque
from collections.abc import Iterable

import msgspec

from services.api.features.idle_switches import UNBINDS
from services.api.identity import controller_identity
from services.api.kinds.node import Node, Taint
from services.api.kinds.pod import Pod
from services.api.meta import Key
from services.api.switches import Switches
from services.api.taints import NO_SCHEDULE
from services.controllers.shared_switches import UnbindingSwitches
from services.reconcile import writes
from services.reconcile.actions import NOTHING, Action, Patch, RecordEvent, Result, event
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch

WINDOW_S = 300.0
BINDS_MIN = 5
RATE_MAX = 0.20
CLUSTER_RATE_MAX = 0.05
CLUSTER_BINDS_MIN = 20
"""Minimum number of binds for the cluster's rate; with fewer, one unbind alone would exceed the rate."""
CLUSTER = Key("", "")
TAINT = "emulation/unbind-storm"
TAINT_S = 300.0


class _Counted:
    """Binds and unbinds of one node: the number of new ones, and the times of the others."""

    def __init__(self) -> None:
        self.new_binds = self.new_unbinds = 0
        self.binds: deque[float] = deque()
        self.unbinds: deque[float] = deque()
        self.until_s = 0.0
        """Until when the storm lasts; 0: none."""

    def advance(self, now: float) -> None:
        """Date what is new, and forget what is too old."""
        self.binds.extend([now] * self.new_binds)
        self.unbinds.extend([now] * self.new_unbinds)
        self.new_binds = self.new_unbinds = 0
        for seen in (self.binds, self.unbinds):
            while seen and seen[0] <= now - WINDOW_S:
                seen.popleft()

    def end_storm(self) -> None:
        """The storm is over and its count reported: the next one counts what comes from now on."""
        self.until_s = 0.0
        self.binds.clear()
        self.unbinds.clear()

    def is_high(self, binds_min: int = BINDS_MIN, rate_max: float = RATE_MAX) -> bool:
        """Whether too many pods are unbound."""
        return len(self.binds) >= binds_min and len(self.unbinds) > rate_max * len(self.binds)


class UnbindStorm:
    """Counts of all nodes. A change has no time of its own; the next reconcile dates it."""

    def __init__(self, switches: Switches) -> None:
        self._taints = switches.of(UnbindingSwitches).taints_storms
        self._nodes: dict[str, _Counted] = {}
        self._all = _Counted()

    def pod_changed(self, change: Change[Pod], listers: Listers) -> Iterable[Key]:
        """Count the change; return the node if it unbound a pod."""
        old, new = change.old, change.new
        if old is None or new is None:
            return ()
        unbinds = new.status.unbind_count - old.status.unbind_count
        if new.spec.node_name and new.spec.node_name != old.spec.node_name:
            self._of(new.spec.node_name).new_binds += 1
            self._all.new_binds += 1
        if unbinds <= 0 or not new.status.unbind_history:
            return ()
        node = new.status.unbind_history[0].node_name
        self._of(node).new_unbinds += unbinds
        self._all.new_unbinds += unbinds
        return Key("", node), CLUSTER

    def node_changed(self, change: Change[Node], listers: Listers) -> Iterable[Key]:
        """Return a node that has the taint, so that the taint is removed in time."""
        if change.new is None:
            self._nodes.pop(change.object.metadata.name, None)
            return ()
        return (change.new.metadata.key,) if _is_tainted(change.new) else ()

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Start, continue, or end a storm."""
        if key == CLUSTER:
            return self._reconcile_cluster(moment.now_s)
        node, counted, now = listers.of(Node).get(key), self._of(key.name), moment.now_s
        counted.advance(now)
        is_over = 0.0 < counted.until_s <= now
        if is_over:
            counted.end_storm()
        if node is None:
            return NOTHING
        actions: list[Action] = []
        if counted.is_high() and now >= counted.until_s:
            counted.until_s = now + TAINT_S
            text = f"{len(counted.unbinds)} of {len(counted.binds)} pods bound here in {WINDOW_S:g} s were unbound"
            actions.append(event(node, "NodeUnbindRateHigh", text, warns=True))
        elif _is_tainted(node) and not counted.until_s and not is_over:
            counted.until_s = now + TAINT_S  # left by the controller that ran before this one
        is_storm = now < counted.until_s
        if _is_tainted(node) != (is_storm and self._taints):
            actions.insert(0, _taint(node, is_storm and self._taints))
        return Result(tuple(actions), requeue_after_s=counted.until_s - now if is_storm else None)

    def _reconcile_cluster(self, now: float) -> Result:
        """Raise the alarm of the whole cluster, at most once in five minutes."""
        counted = self._all
        counted.advance(now)
        if not counted.is_high(CLUSTER_BINDS_MIN, CLUSTER_RATE_MAX) or now < counted.until_s:
            return NOTHING
        counted.until_s = now + WINDOW_S
        text = f"{len(counted.unbinds)} of {len(counted.binds)} pods bound in {WINDOW_S:g} s were unbound"
        where = Key("", "kube-system")
        return Result((RecordEvent("Namespace", "v1", where, "", "ClusterUnbindRateHigh", text, "Warning"),))

    def _of(self, node: str) -> _Counted:
        return self._nodes.setdefault(node, _Counted())


def _is_tainted(node: Node) -> bool:
    return any(taint.key == TAINT for taint in node.spec.taints)


def _taint(node: Node, is_storm: bool) -> Patch:
    kept = [taint for taint in node.spec.taints if taint.key != TAINT]
    wanted = [*kept, Taint(key=TAINT, effect=NO_SCHEDULE)] if is_storm else kept
    taints = [msgspec.to_builtins(taint) for taint in wanted]
    return writes.patch("nodes", node, {"spec": {"taints": taints or None}}, on_version=True)


def _build(switches: Switches) -> Controller:
    memory = UnbindStorm(switches)
    watches = (Watch(Pod, memory.pod_changed), Watch(Node, memory.node_changed))
    # It acts as the node lifecycle controller, which owns the taints of nodes.
    owner = controller_identity("node-lifecycle").user
    return Controller("unbind-storm", None, memory.reconcile, identity=owner, watches=watches)


CONTROLLER = Registration(
    "unbind-storm",
    _build,
    start_order=21,
    is_wanted=lambda switches: switches.of(UnbindingSwitches).on_reject in UNBINDS,
)
