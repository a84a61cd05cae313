"""Delete pods from nodes with NoExecute taints: at once, or when their toleration expires.

A timer belongs to a pod on a node: an unbind, or a binding to another node, cancels it. Upstream's timers
ignore that; `tainteviction.faithful=true` restores those defects.
Source: controllers 9, kubelet-unbinding 8; upstream `pkg/controller/tainteviction` (`taint_eviction.go`,
`timed_workers.go`).
"""

from dataclasses import dataclass, replace
from typing import Final

from services.api.kinds.node import Node, Taint
from services.api.kinds.pod import Pod, Toleration
from services.api.meta import Key, condition_status
from services.api.switches import Switches
from services.api.taints import NO_EXECUTE, tolerates
from services.controllers.shared_pods import BY_NODE, PodsBy
from services.controllers.shared_switches import NodeSwitches
from services.reconcile import conditions, writes
from services.reconcile.actions import NOTHING, Action, Delete, Query, RecordEvent, Result, event
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch
from services.telemetry.metrics import Histogram, Metrics, counter, histogram

REASON = "DeletionByTaintManager"
MESSAGE = "Taint manager: deleting due to NoExecute taint"
EVENT = "TaintManagerEviction"


@dataclass(frozen=True)
class Timer:
    """Timer of one pod on one node: the pod is due at `due_s`, in monotonic seconds."""

    uid: str
    node: str
    due_s: float
    is_announced: bool = False


def patience_s(taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...]) -> float | None:
    """Return for how many seconds all taints are tolerated: 0 not at all, None for ever.

    Each taint uses its first matching toleration; the shortest of these counts.
    """
    used = [next((t for t in tolerations if tolerates(t, taint)), None) for taint in taints]
    seconds = [0 if each is None else each.toleration_seconds for each in used]
    return min((max(0.0, float(each)) for each in seconds if each is not None), default=None)


DELETION_BUCKETS_S = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0)


class TaintEviction:
    """Pods by node, timers, and the reconcile function of one pod."""

    def __init__(self, switches: Switches) -> None:
        self._is_faithful = switches.of(NodeSwitches).is_eviction_faithful
        self._placement = PodsBy(BY_NODE)
        self._timers: dict[Key, Timer] = {}
        self.deletions_s = Histogram(DELETION_BUCKETS_S)

    def pod_changed(self, change: Change[Pod], listers: Listers) -> list[Key]:
        """Return the pod if it has a timer or is on a tainted node."""
        self._placement.note(change.old, change.new)
        key = change.object.metadata.key
        if key in self._timers:
            return [key]
        old, new = change.old, change.new
        if new is None or not new.spec.node_name:
            return []
        judged = new.metadata.uid, new.spec.node_name, new.spec.tolerations
        if old is not None and judged == (old.metadata.uid, old.spec.node_name, old.spec.tolerations):
            return []
        return [key] if _no_execute(listers.of(Node).get(Key("", new.spec.node_name))) else []

    def node_changed(self, change: Change[Node], listers: Listers) -> list[Key]:
        """Return the pods on a node whose NoExecute taints changed."""
        if _no_execute(change.old) == _no_execute(change.new):
            return []
        return self._placement.of(change.object.metadata.name)

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Set, keep, cancel or fire the pod's timer."""
        pod = listers.of(Pod).get(key)
        timer = self._timers.get(key)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            self._timers.pop(key, None)
            if timer is not None and timer.due_s <= moment.now_s:
                self.deletions_s.observe(moment.now_s - timer.due_s)
            return NOTHING
        if timer is not None and not self._is_faithful and not _is_for(timer, pod):
            # Unbound, or on another node, or another pod of that name: what was set for the old place is void.
            del self._timers[key]
            cancelled = self._judge(pod, None, listers, moment)
            return Result((_cancellation_event(pod), *cancelled.actions), cancelled.requeue_after_s, cancelled.refresh)
        if timer is not None and moment.now_s >= timer.due_s:
            return self._fire(pod, moment)
        if not pod.spec.node_name:
            return Result(requeue_after_s=timer.due_s - moment.now_s) if timer is not None else NOTHING
        return self._judge(pod, timer, listers, moment)

    def _judge(self, pod: Pod, timer: Timer | None, listers: Listers, moment: Moment) -> Result:
        key = pod.metadata.key
        taints = _no_execute(listers.of(Node).get(Key("", pod.spec.node_name))) if pod.spec.node_name else ()
        if not taints and timer is not None and timer.node != pod.spec.node_name:
            # Faithful: landing on an untainted node does not cancel what another node's taint set.
            return Result(requeue_after_s=timer.due_s - moment.now_s)
        wait_s = patience_s(taints, pod.spec.tolerations)
        if wait_s is None:
            return NOTHING if self._timers.pop(key, None) is None else Result((_cancellation_event(pod),))
        if wait_s <= 0:
            self._timers[key] = Timer(pod.metadata.uid, pod.spec.node_name, moment.now_s)
            return self._fire(pod, moment)
        due_s = moment.now_s + wait_s
        if timer is not None:
            due_s = timer.due_s if self._is_faithful else min(timer.due_s, due_s)
            self._timers[key] = replace(timer, due_s=due_s)
            return Result(requeue_after_s=due_s - moment.now_s)
        self._timers[key] = Timer(pod.metadata.uid, pod.spec.node_name, due_s, is_announced=True)
        return Result((event(pod, EVENT, f"Marking for deletion Pod {pod.metadata.key}"),), due_s - moment.now_s)

    def _fire(self, pod: Pod, moment: Moment) -> Result:
        """Delete the pod after a live look at it, with the condition that Jobs read.

        The timer stays until the deletion is seen, so that a failed attempt is repeated.
        """
        query = Query(Pod, pod.metadata.key)
        if query not in moment.live:
            return Result(refresh=(query,))
        live = moment.live[query]
        if not isinstance(live, Pod) or live.metadata.deletion_timestamp is not None:
            self._timers.pop(pod.metadata.key, None)
            return NOTHING
        timer = self._timers[pod.metadata.key]
        if not self._is_faithful and not _is_for(timer, live):
            del self._timers[pod.metadata.key]
            return NOTHING
        uid = "" if self._is_faithful else live.metadata.uid
        actions: list[Action] = []
        if not timer.is_announced:
            actions.append(event(pod, EVENT, f"Marking for deletion Pod {pod.metadata.key}"))
            self._timers[pod.metadata.key] = replace(timer, is_announced=True)
        if condition_status(live.status.conditions, "DisruptionTarget") != "True":
            condition = conditions.new("DisruptionTarget", "True", REASON, MESSAGE, moment.wall_s)
            # Against this very binding: a pod that is unbound after the look is another matter (constraint 6).
            patch = writes.conditions("pods", live, condition, on_version=not self._is_faithful)
            actions.append(replace(patch, uid=uid))
        actions.append(Delete("pods", pod.metadata.key, uid=uid))
        return Result(tuple(actions))


def _is_for(timer: Timer, pod: Pod) -> bool:
    return timer.uid == pod.metadata.uid and timer.node == pod.spec.node_name


def _no_execute(node: Node | None) -> tuple[Taint, ...]:
    return tuple(taint for taint in node.spec.taints if taint.effect == NO_EXECUTE) if node is not None else ()


def _cancellation_event(pod: Pod) -> RecordEvent:
    return event(pod, EVENT, f"Cancelling deletion of Pod {pod.metadata.key}")


METRICS: Final[Metrics[TaintEviction]] = Metrics(
    counter(
        "taint_eviction_controller_pod_deletions_total",
        "Total number of Pods deleted by TaintEvictionController since its start.",
        lambda controller: controller.deletions_s.count,
    ),
    histogram(
        "taint_eviction_controller_pod_deletion_duration_seconds",
        "Time between when a taint effect has been activated for the Pod and its deletion.",
        lambda controller: controller.deletions_s,
    ),
)


def _build(switches: Switches) -> Controller:
    memory = TaintEviction(switches)
    watches = (Watch(Pod, memory.pod_changed), Watch(Node, memory.node_changed))
    return Controller(
        "taint-eviction", None, memory.reconcile, watches=watches, workers=8, metrics=lambda: METRICS.of(memory)
    )


CONTROLLER = Registration("taint-eviction", _build, start_order=9)
