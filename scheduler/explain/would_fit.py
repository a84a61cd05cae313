"""The smallest change that would make a pod fit: one dimension at a time, each answer checked by filtering again.

Five questions: how much less of a resource may it request, which taint must it tolerate, which labels does
a node lack, how much more priority lets it preempt, and whether a host port is the only obstacle. Nothing
here is estimated: a change is reported only after every Filter has passed the changed pod (or node),
nominated pods included.
"""

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
from msgspec.structs import replace

from scheduler.cache.cache import Cache
from scheduler.cache.columns import Mask
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.cache.nominator import Nominator
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.runner import Runner
from scheduler.plugins.default_preemption import DefaultPreemption
from services.api.kinds.node import Taint
from services.api.kinds.pod import NodeSelectorRequirement, PodSpec, Toleration
from services.api.node_selection import accepts
from services.api.quantity import format_amount
from services.api.taints import NO_EXECUTE, NO_SCHEDULE, tolerates

NAMED_NODES_MAX = 3
PRIORITIES_MAX = 64
TAINTS_MAX = 64
LABELLED_NODES_MAX = 256
UNSCHEDULABLE_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)


Labels = dict[str, str | None]
"""Label changes: a value to set, None to remove."""


class Change(msgspec.Struct, frozen=True):
    """One change that suffices. `before` and `after` are texts; `nodes` names a few of the `node_count` that fit."""

    dimension: str
    change: str
    before: str
    after: str
    nodes: tuple[str, ...]
    node_count: int


@dataclass(frozen=True)
class Filters:
    """All of a profile's filters over the present nodes, for hypothetical pods."""

    runner: Runner
    cache: Cache
    nominator: Nominator
    now: float

    def fitting(self, pod: PodInfo) -> Mask:
        """Return the rows where the pod fits now, pods nominated there included."""
        return self.runner.filter(CycleState(self.now), pod, self.cache.columns, self.nominator).mask

    def fits_node(self, pod: PodInfo, node: NodeInfo) -> bool:
        """Whether the pod fits a node that may differ from the one in the cache."""
        state = CycleState(self.now)
        if self.runner.filter(state, pod, self.cache.columns).prepared.rejection is not None:
            return False
        return self.runner.filter_node(state, pod, node).is_success


def would_fit_if(filters: Filters, pod: PodInfo) -> list[Change]:
    """Return the sufficient changes, each the smallest of its dimension; empty when the pod fits unchanged."""
    if not filters.cache.columns.count or filters.fitting(pod).any():
        return []
    return [
        *_resources(filters, pod),
        *_taints(filters, pod),
        *_labels(filters, pod),
        *_ports(filters, pod),
        *_priority(filters, pod),
    ]


def _make_change(filters: Filters, dimension: str, change: str, before: str, after: str, mask: Mask) -> Change:
    names = sorted(node.name for row in np.flatnonzero(mask) if (node := filters.cache.columns.nodes[row]) is not None)
    return Change(dimension, change, before, after, tuple(names[:NAMED_NODES_MAX]), len(names))


def with_spec(pod: PodInfo, spec: PodSpec) -> PodInfo:
    """Return the pod with another spec; all derived values are computed anew."""
    return PodInfo(replace(pod.pod, spec=spec))


def with_request(pod: PodInfo, resource: str, amount: int) -> PodInfo:
    """Return the pod with another total request of one resource (milli for cpu, units for all else)."""
    amounts = {**pod.requests.amounts, resource: amount}
    wanted = tuple((name, amounts[name]) for name, _ in pod.requests.wanted if amounts[name] > 0)
    changed = PodInfo(pod.pod)
    changed.requests = dataclasses.replace(pod.requests, amounts=amounts, wanted=wanted)
    return changed


def _resources(filters: Filters, pod: PodInfo) -> Iterator[Change]:
    columns = filters.cache.columns
    for resource, asked in pod.requests.wanted:
        if resource not in columns.allocatable or not filters.fitting(with_request(pod, resource, 0)).any():
            continue
        free = (columns.allocatable[resource] - columns.requested[resource])[columns.valid]
        amounts = sorted({0, *(int(f) for f in free if 0 < f < asked)})
        # What fits with an amount fits with less, so the largest is found by halving.
        low, high = 0, len(amounts) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if filters.fitting(with_request(pod, resource, amounts[middle])).any():
                low = middle
            else:
                high = middle - 1
        mask = filters.fitting(with_request(pod, resource, amounts[low]))
        before, after = format_amount(resource, asked), format_amount(resource, amounts[low])
        yield _make_change(filters, resource, f"request at most {after} {resource}", before, after, mask)


def _taints(filters: Filters, pod: PodInfo) -> Iterator[Change]:
    columns = filters.cache.columns
    seen: dict[tuple[str, str, str], Taint] = {}
    if (columns.unschedulable & columns.valid).any():
        seen[UNSCHEDULABLE_TAINT.key, "", NO_SCHEDULE] = UNSCHEDULABLE_TAINT
    for node in columns.nodes:
        for taint in node.node.spec.taints if node is not None and node.node is not None else ():
            if taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not any(tolerates(t, taint) for t in pod.spec.tolerations):
                seen.setdefault((taint.key, taint.value, taint.effect), taint)
    for taint in [seen[each] for each in sorted(seen)][:TAINTS_MAX]:
        operator = "Equal" if taint.value else "Exists"
        more = Toleration(key=taint.key, operator=operator, value=taint.value, effect=taint.effect)
        spec = replace(pod.spec, tolerations=(*pod.spec.tolerations, more))
        mask = filters.fitting(with_spec(pod, spec))
        if mask.any():
            text = f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
            yield _make_change(filters, "taint", f"tolerate {text}", "", text, mask)


def _labels(filters: Filters, pod: PodInfo) -> Iterator[Change]:
    spec = pod.spec
    affinity = spec.affinity
    node_affinity = affinity.node_affinity if affinity is not None else None
    if not spec.node_selector and (node_affinity is None or node_affinity.required is None):
        return
    free = replace(spec, node_selector={})
    if affinity is not None and node_affinity is not None:
        free = replace(free, affinity=replace(affinity, node_affinity=replace(node_affinity, required=None)))
    candidates = np.flatnonzero(filters.fitting(with_spec(pod, free)))
    nodes = [node for row in candidates if (node := filters.cache.columns.nodes[row]) is not None]
    best: tuple[int, NodeInfo, Labels] | None = None
    for node in sorted(nodes, key=lambda n: n.name)[:LABELLED_NODES_MAX]:
        missing = missing_labels(pod, node.labels)
        if missing and (best is None or len(missing) < best[0]) and filters.fits_node(pod, _with_labels(node, missing)):
            best = (len(missing), node, missing)
    if best is not None:
        _, node, missing = best
        verbs = [f"{key}-" if value is None else f"{key}={value}" for key, value in sorted(missing.items())]
        before = ", ".join(f"{key}={node.labels[key]}" for key in sorted(missing) if key in node.labels)
        yield Change("label", f"label node {node.name} {' '.join(verbs)}", before, ", ".join(verbs), (node.name,), 1)


def missing_labels(pod: PodInfo, labels: Mapping[str, str]) -> Labels:
    """Return the fewest label changes (None: remove) that satisfy selector and required affinity.

    {} if no changes can.
    """
    wanted: Labels = {k: v for k, v in pod.spec.node_selector.items() if labels.get(k) != v}
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return wanted
    options: list[Labels] = []
    for term in affinity.required.node_selector_terms:
        if term.match_fields or not term.match_expressions:
            continue
        changes = _satisfying(term.match_expressions, {**labels, **{k: v for k, v in wanted.items() if v is not None}})
        if changes is not None:
            options.append({**wanted, **changes})
    return min(options, key=len) if options else {}


def _satisfying(requirements: tuple[NodeSelectorRequirement, ...], labels: Mapping[str, str]) -> Labels | None:
    changes: Labels = {}
    for requirement in requirements:
        if accepts(requirement, labels.get(requirement.key)):
            continue
        value = _accepted_value(requirement)
        if value == "?" or changes.get(requirement.key, value) != value:
            return None
        changes[requirement.key] = value
    after = {k: v for k, v in {**labels, **changes}.items() if v is not None}
    return changes if all(accepts(r, after.get(r.key)) for r in requirements) else None


def _accepted_value(requirement: NodeSelectorRequirement) -> str | None:
    """Return a value that the requirement accepts, None for removing the label, "?" when there is none."""
    match requirement.operator:
        case "In":
            return requirement.values[0] if requirement.values else "?"
        case "Exists":
            return ""
        case "NotIn" | "DoesNotExist":
            return None
        case "Gt" | "Lt" if len(requirement.values) == 1 and requirement.values[0].lstrip("-").isdecimal():
            step = 1 if requirement.operator == "Gt" else -1
            return str(int(requirement.values[0]) + step)
        case _:
            return "?"


def _with_labels(node: NodeInfo, changes: Mapping[str, str | None]) -> NodeInfo:
    assert node.node is not None
    labels = {k: v for k, v in {**node.labels, **changes}.items() if v is not None}
    changed = copy.copy(node)
    changed.node = replace(node.node, metadata=replace(node.node.metadata, labels=labels))
    return changed


def _ports(filters: Filters, pod: PodInfo) -> Iterator[Change]:
    if not pod.ports:
        return
    free = PodInfo(pod.pod)
    free.ports = ()
    mask = filters.fitting(free)
    if mask.any():
        taken = ", ".join(f"{protocol} {port}" for _, protocol, port in pod.ports)
        yield _make_change(filters, "hostPort", f"ask for no host port ({taken})", taken, "", mask)


def _priority(filters: Filters, pod: PodInfo) -> Iterator[Change]:
    """Try, from the lowest, each priority that has a further pod below it."""
    preemption = filters.runner.plugins_by_name.get("DefaultPreemption")
    if not isinstance(preemption, DefaultPreemption) or pod.spec.preemption_policy == "Never":
        return
    bound = [state.pod.priority for state in filters.cache.pods.values()]
    below = sorted({priority + 1 for priority in bound if priority >= pod.priority})
    columns = filters.cache.columns
    for priority in below[:PRIORITIES_MAX]:
        raised, state = with_spec(pod, replace(pod.spec, priority=priority)), CycleState(filters.now)
        diagnosis = filters.runner.diagnose(state, raised, columns, filters.runner.filter(state, raised, columns))
        result = preemption.decide(state, raised, columns, diagnosis)
        if result.status.is_success and result.nominated_node:
            victims = [str(victim.key) for eviction in result.actions for victim in eviction.victims]
            more = f" and {len(victims) - 1} more" if len(victims) > 1 else ""
            change = f"priority {priority}, which preempts {victims[0]}{more}"
            yield Change("priority", change, str(pod.priority), str(priority), (result.nominated_node,), 1)
            return
