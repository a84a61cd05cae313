"""Delete pods that no other component will: surplus ended pods, and pods of nodes that are out of service or
gone.

It runs every 20 s, from the cache. Source: controllers 8; upstream `pkg/controller/podgc/gc_controller.go`.
"""

from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.api.meta import Document, Key
from services.api.switches import Switches
from services.controllers.shared_pods import seconds_of
from services.controllers.shared_switches import NodeSwitches
from services.reconcile import conditions
from services.reconcile.actions import Action, Delete, Patch, Query, Result
from services.reconcile.controller import Controller, Listers, Moment, Registration

PERIOD_S = 20.0
QUARANTINE_S = 40.0
"""Seconds that a node must be missing before its pods are checked."""
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
REASON, MESSAGE = "DeletionByPodGC", "PodGC: node no longer exists"


class PodGC:
    """The four rules, and the time since when each node of a pod has been missing."""

    def __init__(self, switches: Switches) -> None:
        self._threshold = switches.of(NodeSwitches).garbage_max
        self._rechecks = switches.of(NodeSwitches).rechecks_garbage
        self._missing_since_s: dict[str, float] = {}

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Apply the rules in upstream's order; later rules skip pods that an earlier rule deletes."""
        pods = listers.of(Pod).all()
        orphans = self._orphans(pods, listers, moment.now_s)
        queries = self._queries(orphans)
        if any(query not in moment.live for query in queries):
            return Result(refresh=tuple(queries))
        chosen: dict[Key, list[Action]] = {}
        for pod in self._surplus(pods):
            chosen.setdefault(pod.metadata.key, self._remove(pod, moment))
        for pod in pods:
            if pod.metadata.deletion_timestamp is not None and _is_out_of_service(pod, listers):
                chosen.setdefault(pod.metadata.key, self._remove(pod, moment))
        for pod in orphans:
            if self._is_confirmed(pod, moment):
                chosen.setdefault(pod.metadata.key, self._remove(pod, moment, has_lost_node=True))
        for pod in pods:
            # Also right for a pod that was unbound and then deleted: no kubelet will confirm its end.
            if pod.metadata.deletion_timestamp is not None and not pod.spec.node_name:
                chosen.setdefault(pod.metadata.key, self._remove(pod, moment))
        return Result(tuple(action for actions in chosen.values() for action in actions))

    def _surplus(self, pods: list[Pod]) -> list[Pod]:
        """Return the ended pods above the threshold: evicted ones first, then the oldest."""
        ended = [pod for pod in pods if pod.is_terminal]
        if self._threshold <= 0 or len(ended) <= self._threshold:
            return []

        def rank(pod: Pod) -> tuple[object, ...]:
            return pod.status.reason != "Evicted", seconds_of(pod.metadata.creation_timestamp), pod.metadata.key

        return sorted(ended, key=rank)[: len(ended) - self._threshold]

    def _orphans(self, pods: list[Pod], listers: Listers, now_s: float) -> list[Pod]:
        """Return the pods whose node has been missing from the cache for the quarantine."""
        nodes = listers.of(Node)
        lost = [pod for pod in pods if pod.spec.node_name and nodes.get(Key("", pod.spec.node_name)) is None]
        named = dict.fromkeys(pod.spec.node_name for pod in lost)
        self._missing_since_s = {name: self._missing_since_s.get(name, now_s) for name in named}
        return [pod for pod in lost if now_s - self._missing_since_s[pod.spec.node_name] >= QUARANTINE_S]

    def _queries(self, orphans: list[Pod]) -> list[Query]:
        queries = dict.fromkeys(Query(Node, Key("", pod.spec.node_name)) for pod in orphans)
        if self._rechecks:
            queries.update(dict.fromkeys(Query(Pod, pod.metadata.key) for pod in orphans))
        return list(queries)

    def _is_confirmed(self, pod: Pod, moment: Moment) -> bool:
        """Whether the node is really gone and, with `podgc.recheck`, the pod is still the same and still there.

        Without the recheck a pod that was unbound and bound elsewhere within the cache's lag dies.
        """
        if moment.live[Query(Node, Key("", pod.spec.node_name))] is not None:
            return False
        if not self._rechecks:
            return True
        live = moment.live[Query(Pod, pod.metadata.key)]
        here = pod.metadata.uid, pod.spec.node_name
        return isinstance(live, Pod) and (live.metadata.uid, live.spec.node_name) == here

    def _remove(self, pod: Pod, moment: Moment, *, has_lost_node: bool = False) -> list[Action]:
        uid = pod.metadata.uid if self._rechecks else ""
        actions: list[Action] = []
        if not pod.is_terminal:
            status: Document = {"phase": "Failed"}
            if has_lost_node:
                status["conditions"] = [conditions.new("DisruptionTarget", "True", REASON, MESSAGE, moment.wall_s)]
            actions.append(Patch("pods", pod.metadata.key, {"status": status}, "status", "strategic", uid))
        actions.append(Delete("pods", pod.metadata.key, uid=uid, grace_period_s=0))
        return actions


def _is_out_of_service(pod: Pod, listers: Listers) -> bool:
    node = listers.of(Node).get(Key("", pod.spec.node_name)) if pod.spec.node_name else None
    return node is not None and not node.is_ready and any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)


def _build(switches: Switches) -> Controller:
    return Controller("podgc", None, PodGC(switches).reconcile, reads=(Pod, Node), period_s=PERIOD_S)


CONTROLLER = Registration("podgc", _build, start_order=10)
