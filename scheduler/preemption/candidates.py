"""Which nodes are tried, in which order, and when enough were found (preemption 3.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from scheduler.framework.status import Code, Status
from scheduler.preemption.victims import Victims

NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
NO_CANDIDATE: Final = "no candidate node for preemption"
PERCENTAGE: Final = 10
ABSOLUTE: Final = 100


def wanted(nodes: int, percentage: int = PERCENTAGE, absolute: int = ABSOLUTE) -> int:
    """Return how many candidates are enough, of so many potential nodes."""
    return min(nodes, max(nodes * percentage // 100, absolute))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node and who would have to leave it. A group's candidate is called `cluster`."""

    node: str
    victims: Victims


@dataclass(slots=True)
class Search:
    """What the visits found. `statuses` counts, by its reasons, the nodes that cannot be freed."""

    non_violating: list[Candidate] = field(default_factory=list)
    violating: list[Candidate] = field(default_factory=list)
    statuses: Counter[tuple[str, ...]] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    visited: int = 0

    @property
    def candidates(self) -> list[Candidate]:
        """All of them, those without PDB violations first."""
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


Judge = Callable[[int], Candidate | Status]


def search(rows: Sequence[int], offset: int, enough: int, judge: Judge) -> Search:
    """Visit the potential nodes from the offset on, wrapping, until there are enough candidates.

    Enough means: at least one of them violates no budget, and together they are `enough`; while all violate one,
    every node is visited. Each of the two lists holds at most `enough`.
    """
    found = Search()
    non_violating, violating = found.non_violating, found.violating
    for row in (*rows[offset:], *rows[:offset]):
        found.visited += 1
        result = judge(row)
        if isinstance(result, Status):
            if result.code is Code.ERROR:
                found.errors.append(result.message)
            found.statuses[result.reasons] += 1
            continue
        candidates = violating if result.victims.violations else non_violating
        if len(candidates) < enough:
            candidates.append(result)
        if non_violating and len(non_violating) + len(violating) >= enough:
            break
    return found
