"""What all extenders together think of a pod's nodes, gathered for the cycle; and who is asked at all. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from scheduler.cache.columns import Columns, Scores
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.configuration.document import Extender
from scheduler.cycle.scheduling_cycle import EXTENDER
from scheduler.extenders.documents import FilterAnswer, HostPriority, MetaVictims
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.plugin import MAX_NODE_SCORE
from scheduler.preemption.candidates import ExtenderError, Victims
from scheduler.preemption.units import Unit, by_importance, pod_unit

MAX_EXTENDER_PRIORITY: Final = 10


def is_interested(extender: Extender, pod: PodInfo) -> bool:
    """Whether the extender manages nothing in particular, or something that a container asks for."""
    if not extender.managed_resources:
        return True
    managed = {resource.name for resource in extender.managed_resources}
    return any(
        not managed.isdisjoint(container.resources.requests) or not managed.isdisjoint(container.resources.limits)
        for container in (*pod.spec.containers, *pod.spec.init_containers)
    )


@dataclass(slots=True)
class Gathered:
    """The opinion of all extenders asked so far."""

    columns: Columns
    failed: dict[int, tuple[str, bool]] = field(default_factory=dict)
    """Row to reason ("" when none was given) and whether preemption cannot help."""
    scores: Scores | None = None

    def turned_down(self, asked: Sequence[str], left: Sequence[str], answer: FilterAnswer) -> None:
        """Note the nodes that an extender did not leave."""
        unresolvable, failed = answer.unresolvable_nodes or {}, answer.failed_nodes or {}
        stayed = set(left)
        for name in asked:
            if name in stayed:
                continue
            row = self.columns.slots[name]
            if name in unresolvable or name not in failed:
                # A node dropped without a word has upstream's status of nodes without a reason.
                self.failed[row] = (unresolvable.get(name, ""), True)
            else:
                self.failed[row] = (failed[name], False)

    def prioritized(self, points: Sequence[HostPriority], weight: int) -> None:
        """Add an extender's points, brought from 0..10 to the 0..100 of plugins, times its weight."""
        if self.scores is None:
            self.scores = np.zeros(self.columns.capacity)
        for each in points:
            row = self.columns.slots.get(each.host)
            if row is not None:
                self.scores[row] += each.score * weight * (MAX_NODE_SCORE // MAX_EXTENDER_PRIORITY)

    def add_to(self, diagnosis: Diagnosis) -> None:
        """Say which nodes were turned down and why; any event may then wake the pod."""
        if self.failed:
            diagnosis.rejectors.add(EXTENDER)
        for row, (reason, is_unresolvable) in self.failed.items():
            if reason:
                diagnosis.count(EXTENDER, reason, 1)
            diagnosis.unresolvable[row] = is_unresolvable


def victims_of(node: NodeInfo, ours: Victims, theirs: MetaVictims, url: str) -> Victims:
    """Return the victims an extender named, as units. Raises: ExtenderError for a pod that is not on the node."""
    units: dict[str, Unit] = {}
    known = {pod.uid: unit for unit in ours.units for pod in unit.pods}
    for uid in theirs.uids:
        if uid not in known and uid not in node.pods:
            text = f"extender: {url} claims to preempt pod (UID: {uid}) on node: {node.name}, but the pod is not found"
            raise ExtenderError(f"{text} on that node")
        unit = known.get(uid) or pod_unit(node.pods[uid])
        units[unit.uid] = unit
    return Victims(tuple(by_importance(list(units.values()))), theirs.violations)
