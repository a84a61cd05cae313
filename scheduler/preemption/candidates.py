"""The victims on a node, the nodes to try, and the choice among them (preemption 3.2 to 3.4).

*Victims* of a node are all pods of lower priority, minus those that can stay: a dry run removes them and
puts back the ones that still fit; disruption budgets show whose eviction would violate one. A node with its
victims is a *candidate*.

Dry runs are cached (`Memory`): the next pod of the same template finds most nodes unchanged. The result of
a node's dry run holds while the node, the pods on it, the nominations to it and all budgets are the same.
That is so only if the filters in use depend on nothing else; the caller knows.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Protocol

from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.runner import Runner
from scheduler.framework.status import Code, Status, error_status, unresolvable, unschedulable
from scheduler.preemption.units import Unit, Units, by_importance
from services.api.kinds.poddisruptionbudget import PodDisruptionBudget
from services.api.lru import LRU
from services.api.selectors import Selector, from_label_selector

NO_VICTIMS: Final = "No preemption victims found for incoming pod"
PRIORITY_OFFSET: Final = 2**31
"""Added to each priority before summing, so that one pod of -10 is a smaller loss than two of -10."""
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
NO_CANDIDATE: Final = "no candidate node for preemption"
PERCENTAGE: Final = 10
ABSOLUTE: Final = 100
TEMPLATES_MAX: Final = 16
ASKING: Final = "DefaultPreemption/extenders"
"""Key of the cycle state: whether extenders must see the candidates before one is picked."""
LEFT: Final = "DefaultPreemption/left"
"""Key of the cycle state: the candidates that extenders left, or the status that came instead."""
SEARCHED: Final = "DefaultPreemption/search"
"""Key of the cycle state: the candidates found, kept while extenders are called."""


@dataclass(frozen=True, slots=True)
class Budget:
    """One PodDisruptionBudget; `allowed` may be negative.

    `disrupted`: pods whose eviction it has counted already.
    """

    selector: Selector
    allowed: int
    disrupted: Mapping[str, str]


class Budgets:
    """The budgets of the cluster, by namespace, from their present status.

    `matches_empty`: whether an empty selector (`{}`) means all pods of the namespace, as policy/v1 defines; up
    to 1.37 preemption ignored such budgets, and pods without labels. A missing selector matches nothing.
    """

    def __init__(self, budgets: Sequence[PodDisruptionBudget], *, matches_empty: bool = True) -> None:
        self._matches_empty = matches_empty
        self._by_namespace: dict[str, list[Budget]] = {}
        for budget in budgets:
            if budget.spec.selector is None:
                continue
            try:
                selector = from_label_selector(budget.spec.selector)
            except ValueError:
                continue  # the API server refuses such selectors; one that came through matches nothing
            if selector.terms or matches_empty:
                status, namespace = budget.status, budget.metadata.namespace
                entry = Budget(selector, status.disruptions_allowed, status.disrupted_pods)
                self._by_namespace.setdefault(namespace, []).append(entry)

    def __bool__(self) -> bool:
        return bool(self._by_namespace)

    def split(self, units: Sequence[Unit]) -> tuple[list[tuple[Unit, int]], list[Unit]]:
        """Return the units whose eviction would overdraw a budget, each with its number of such pods, and the rest.

        `units` come in order of importance, so that the more important consume what a budget allows and the less
        important are the violating ones. A unit is violating if any of its pods is. Every matching budget is
        charged, also when an earlier one was overdrawn.
        """
        if not self._by_namespace:
            return [], list(units)
        left: dict[int, int] = {}
        violating: list[tuple[Unit, int]] = []
        rest: list[Unit] = []
        for unit in units:
            overdrawn = sum(self._charge(pod, left) for pod in unit.pods)
            if overdrawn:
                violating.append((unit, overdrawn))
            else:
                rest.append(unit)
        return violating, rest

    def _charge(self, pod: PodInfo, left: dict[int, int]) -> bool:
        labels = pod.metadata.labels
        if not labels and not self._matches_empty:
            return False
        is_violating = False
        for budget in self._by_namespace.get(pod.key.namespace, ()):
            if not budget.selector.matches(labels) or pod.key.name in budget.disrupted:
                continue
            remaining = left[id(budget)] = left.get(id(budget), budget.allowed) - 1
            is_violating |= remaining < 0
        return is_violating


@dataclass(frozen=True)
class Victims:
    """The units to evict, the most important first; `violations`: pods whose eviction violates a budget."""

    units: tuple[Unit, ...]
    violations: int = 0

    @cached_property
    def pods(self) -> tuple[PodInfo, ...]:
        """All pods to evict, the most important first."""
        return tuple(pod for unit in self.units for pod in unit.pods)

    @cached_property
    def loss(self) -> tuple[float, ...]:
        """Return the cost of this eviction: five criteria in order, each smaller is better (3.4).

        Fewest PDB violations; the lowest priority of the most important victim; the smallest sum of priorities; the
        fewest pods; the most important victims that ran for the shortest time.
        """
        top = self.units[0].priority
        return (
            self.violations,
            top,
            sum((unit.priority + PRIORITY_OFFSET) * len(unit.pods) for unit in self.units),
            sum(len(unit.pods) for unit in self.units),
            -min(unit.start_s for unit in self.units if unit.priority == top),
        )


class WhatIf(Protocol):
    """A node (or a cluster) whose pods can be removed and added for a dry run."""

    def remove(self, unit: Unit) -> None:
        """Remove the unit from the dry run."""
        ...

    def add(self, unit: Unit) -> None:
        """Put a removed unit back where it ran."""
        ...

    def fits(self) -> Status:
        """Return the filters' present answer."""
        ...


class NodeWhatIf:
    """A hypothetical node: it works on copies of node and cycle state.

    `rivals`: pods of at least the pod's priority nominated there. A unit may have pods on other nodes; those
    nodes stay as they are, only the plugins' state follows (preemption 7.2).
    """

    def __init__(
        self, filters: Runner, state: CycleState, pod: PodInfo, node: NodeInfo, rivals: Sequence[PodInfo], units: Units
    ) -> None:
        self._filters = filters
        self._state = state if filters.has_only_row_filters(state) else state.clone()
        self._pod = pod
        self._node = node.with_pods([])
        self._rivals = rivals
        self._units = units

    def remove(self, unit: Unit) -> None:
        """Remove the unit from the dry run."""
        for pod in unit.pods:
            if self._node.remove(pod.uid) is not None:
                self._filters.remove_pod(self._state, self._pod, pod, self._node)
            elif (elsewhere := self._units.node_of(pod)) is not None:
                self._filters.remove_pod(self._state, self._pod, pod, elsewhere)

    def add(self, unit: Unit) -> None:
        """Put a removed unit back where it ran."""
        for pod in unit.pods:
            elsewhere = self._units.node_of(pod)
            if elsewhere is None or elsewhere.name == self._node.name:
                self._node.add(pod)
                elsewhere = self._node
            self._filters.add_pod(self._state, self._pod, pod, elsewhere)

    def fits(self) -> Status:
        """Return the filters' present answer, beside the nominated pods and without them."""
        return self._filters.filter_beside(self._state, self._pod, self._node, self._rivals)


def select_victims(potential: Sequence[Unit], what_if: WhatIf, budgets: Budgets, *, node: str) -> Victims | Status:
    """Return the victims, or why evicting all of `potential` (all of lower priority) would not help.

    Each unit is tried once, so the answer is neither the fewest nor the smallest victims: first those whose
    eviction would overdraw a budget, then the others, the most important first, are put back if the pod still
    fits beside them. A budget that nothing else meets is overdrawn.
    """
    if not potential:
        return unresolvable(NO_VICTIMS)
    for unit in potential:
        what_if.remove(unit)
    status = what_if.fits()
    if not status.is_success:
        return status
    violating, rest = budgets.split(by_importance(list(potential)))
    victims: list[Unit] = []
    violations = 0
    for unit, overdrawn in [*violating, *((unit, 0) for unit in rest)]:
        what_if.add(unit)
        if what_if.fits().is_success:
            continue
        what_if.remove(unit)
        victims.append(unit)
        violations += overdrawn
    if not victims:
        return error_status(f'expected at least one victim pod on node "{node}"')
    if violating and rest:
        victims = by_importance(victims)
    return Victims(tuple(victims), violations)


def candidate_count(nodes: int, percentage: int, absolute: int) -> int:
    """Return how many candidates are enough, for so many potential nodes."""
    return min(nodes, max(nodes * percentage // 100, absolute))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node and its victims. A group's candidate has the node name `cluster`."""

    node: str
    victims: Victims


@dataclass(slots=True)
class Search:
    """The result of the visits. `statuses` counts, by its reasons, the nodes that cannot be freed."""

    non_violating: list[Candidate] = field(default_factory=list)
    violating: list[Candidate] = field(default_factory=list)
    statuses: Counter[tuple[str, ...]] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    visited: int = 0

    @property
    def candidates(self) -> list[Candidate]:
        """All candidates, those without PDB violations first."""
        return [*self.non_violating, *self.violating]

    def message(self, node_count: int) -> str:
        """Return why no node is a candidate, in the words of a fit error over all nodes."""
        histogram: Counter[str] = Counter()
        for reasons, nodes in self.statuses.items():
            for reason in reasons:
                histogram[reason] += nodes
        untried = node_count - self.visited
        if untried:
            histogram[NOT_HELPFUL] += untried
        lines = sorted(f"{nodes} {reason}" for reason, nodes in histogram.items())
        return f"0/{node_count} nodes are available:" + (f" {', '.join(lines)}." if lines else "")


def search(rows: Sequence[int], offset: int, enough: int, judge: Callable[[int], Candidate | Status]) -> Search:
    """Visit the potential nodes from the offset on, wrapping, until there are enough candidates.

    Enough means: at least one of them violates no budget, and together they are `enough`; while all violate one,
    every node is visited. Each of the two lists holds at most `enough`.
    """
    outcome = Search()
    non_violating, violating = outcome.non_violating, outcome.violating
    for row in (*rows[offset:], *rows[:offset]):
        outcome.visited += 1
        result = judge(row)
        if isinstance(result, Status):
            if result.code is Code.ERROR:
                outcome.errors.append(result.message)
            outcome.statuses[result.reasons] += 1
            continue
        candidates = violating if result.victims.violations else non_violating
        if len(candidates) < enough:
            candidates.append(result)
        if non_violating and len(non_violating) + len(violating) >= enough:
            break
    return outcome


def pick(candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate with the smallest loss; a tie goes to the first node by name."""
    return min(candidates, key=lambda candidate: (candidate.victims.loss, candidate.node))


class ExtenderError(Exception):
    """Error: an extender did not answer, or its answer cannot be parsed."""


def left_by_extender(
    candidates: Sequence[Candidate], answer: Mapping[str, Victims] | ExtenderError, *, is_ignorable: bool
) -> list[Candidate] | Status:
    """Return the candidates that an extender leaves (`preemptVerb`), or why none is left.

    Each has the same or other victims. An ignorable extender that fails, or leaves a node without victims, is
    ignored; any other ends the attempt.
    """
    error = ""
    if isinstance(answer, ExtenderError):
        error = str(answer)
    elif empty := next((node for node, left in answer.items() if not left.units), ""):
        error = f'expected at least one victim pod on node "{empty}"'
    else:
        # In the order in which they were found, whatever order an extender answers in.
        left = [Candidate(c.node, answer[c.node]) for c in candidates if c.node in answer]
        return left or unschedulable(NO_CANDIDATE)
    return list(candidates) if is_ignorable else Status(Code.ERROR, (error,))


Stamp = tuple[int, int]
"""The generations of a node and of the nominations to it."""
Results = dict[str, tuple[Stamp, Candidate | Status]]


class Memory:
    """Cached results of dry runs, for the templates that were used last."""

    def __init__(self) -> None:
        self._budgets: Sequence[PodDisruptionBudget] = ()
        self._templates: LRU[Hashable, Results] = LRU(TEMPLATES_MAX)

    def of(self, template: Hashable, budgets: Sequence[PodDisruptionBudget]) -> Results:
        """Return the results of nodes for a template; the caller adds to them."""
        if len(budgets) != len(self._budgets) or any(a is not b for a, b in zip(budgets, self._budgets, strict=True)):
            self._budgets = list(budgets)
            self._templates.clear()
        results = self._templates.use(template)
        if results is None:
            self._templates.put(template, results := {})
        return results
