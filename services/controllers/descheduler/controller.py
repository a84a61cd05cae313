"""Remove failed pods after a while: the descheduler's strategy RemoveFailedPods, as today's cure for rejections.

Every `descheduler.interval_s` the Failed pods with one of the reasons, of at least a minimum age, not of excluded
owners and not above the limits of a round are deleted. What it cannot do is the point: it comes after the fact, races
with controllers that replaced the pod long ago, has no say in which node is chosen, and never sees a pod that is
stuck Pending. Source: kubelet-unbinding 2; kubernetes-sigs/descheduler, RemoveFailedPods.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from services.api.identity import controller_identity
from services.api.kinds.pod import Pod
from services.api.meta import Key
from services.api.switches import Switches
from services.controllers.shared_readiness import seconds_of
from services.reconcile.actions import Delete, RecordEvent, Result
from services.reconcile.controller import Controller, Listers, Moment


class RemoveFailedPods:
    """The rules of one round; nothing is remembered between two."""

    def __init__(self, switches: Switches) -> None:
        self._reasons = tuple(part for part in switches.choice("descheduler.reasons").split("+") if part)
        self._min_lifetime_s = switches.number("descheduler.min_lifetime_s")
        self._excluded_owners = tuple(switches.choice("descheduler.exclude_owners").split("+"))
        self._max_total = switches.integer("descheduler.max_total")
        self._max_per_node = switches.integer("descheduler.max_per_node")
        self._max_per_namespace = switches.integer("descheduler.max_per_namespace")

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Delete what is due this round, the oldest first, and tell."""
        actions: list[Delete | RecordEvent] = []
        for pod in self._chosen(listers.of(Pod).all(), moment.wall_s):
            meta = pod.metadata
            actions.append(Delete("pods", meta.key, uid=meta.uid, grace_period_s=0))
            why = f"pod failed on {pod.spec.node_name or 'no node'}: {pod.status.reason}"
            actions.append(RecordEvent("Pod", "v1", meta.key, meta.uid, "RemoveFailedPods", why))
        return Result(tuple(actions))

    def _chosen(self, pods: list[Pod], wall_s: float) -> Iterator[Pod]:
        """Go through the candidates by age until a limit is reached; 0 is no limit."""
        by_node: dict[str, int] = {}
        by_namespace: dict[str, int] = {}
        total = 0
        due = [pod for pod in pods if self._is_due(pod, wall_s)]
        due.sort(key=lambda pod: (seconds_of(pod.metadata.creation_timestamp), pod.metadata.key))
        for pod in due:
            node, namespace = pod.spec.node_name, pod.metadata.namespace
            if self._max_total and total >= self._max_total:
                return
            if _is_full(by_node, node, self._max_per_node) or _is_full(
                by_namespace, namespace, self._max_per_namespace
            ):
                continue
            total += 1
            by_node[node] = by_node.get(node, 0) + 1
            by_namespace[namespace] = by_namespace.get(namespace, 0) + 1
            yield pod

    def _is_due(self, pod: Pod, wall_s: float) -> bool:
        meta, owner = pod.metadata, pod.metadata.controller
        if pod.status.phase != "Failed" or meta.deletion_timestamp is not None:
            return False
        if owner is not None and owner.kind in self._excluded_owners:
            return False
        if wall_s - seconds_of(meta.creation_timestamp) < self._min_lifetime_s:
            return False
        return any(fnmatchcase(pod.status.reason, wanted) for wanted in self._reasons)


def _is_full(counts: dict[str, int], name: str, most: int) -> bool:
    return bool(most) and counts.get(name, 0) >= most


def controller(switches: Switches) -> Controller:
    """Return the controller."""
    return Controller(
        name="descheduler",
        identity=controller_identity("descheduler").user,
        reconciles=None,
        reconcile=RemoveFailedPods(switches).reconcile,
        reads=(Pod,),
        period_s=switches.number("descheduler.interval_s"),
    )
