"""Reasons of a scheduler for a node: the scores of the best nodes, attached to its attempts. In a
simulation, while it runs.
"""

from typing import Any, Final, Protocol

import msgspec

from lab.scenarios.decisions.decision import Decision, Decisions
from services.api.meta import Key
from services.api.seams import Component
from services.telemetry.eventlog import Line

BEST: Final = 5


class SimulatedMesh(Protocol):
    """Interface of the mesh that writes the lines."""

    def instance(self, component: str) -> Component | None:
        """Return the component that runs under this name."""


class ScoredDecisions:
    """Reader of decisions that adds to each successful attempt what its scheduler keeps for `keplab explain`.

    The scheduler stores that right after it has written the line of the attempt. So it is read when the next
    line comes, and decisions are returned as soon as they are complete.
    """

    def __init__(self, best: int = BEST, *, with_rejections: bool = False) -> None:
        """Create a reader. `best`: number of nodes with scores; `with_rejections`: also keep for all attempts which
        plugin rejected what.
        """
        self._best, self._with_rejections = best, with_rejections
        self._reader = Decisions()
        self._mesh: SimulatedMesh | None = None
        self._attempt: tuple[Line, Decision] | None = None

    def look_into(self, mesh: SimulatedMesh) -> None:
        """Set the mesh whose schedulers are queried; without a mesh, decisions have no scores."""
        self._mesh = mesh

    def take(self, line: Line) -> list[Decision]:
        """Read a line; return the decisions that are now complete, in their order."""
        if line.ev == "sched.assume":
            return []
        complete = self.rest()
        decision = self._reader.of(line)
        if decision is None:
            return complete
        is_attempt = decision.event == "sched.attempt" and self._with_rejections
        if self._mesh is None or not (decision.outcome == "scheduled" or is_attempt):
            return [*complete, decision]
        self._attempt = line, decision
        return complete

    def rest(self) -> list[Decision]:
        """Return the incomplete decision with what is known of it."""
        if self._attempt is None:
            return []
        (line, decision), self._attempt = self._attempt, None
        return [msgspec.structs.replace(decision, why=decision.why | self._scores(line))]

    def _scores(self, line: Line) -> dict[str, Any]:
        scheduler: Any = self._mesh.instance(line.comp) if self._mesh is not None else None
        if scheduler is None or line.obj is None:
            return {}
        kept = scheduler.explainer.core.decisions.of(Key(line.obj["ns"], line.obj["name"]))
        if kept is None or (kept.uid, kept.attempt) != (line.obj["uid"], line.data["attempt"]):
            return {}
        details: dict[str, Any] = {}
        if self._with_rejections:
            details = {"feasible": kept.feasible_count, "evaluated": kept.evaluated, "rejected": kept.rejected}
            details |= {"victims": list(kept.victims), "preempted_by": kept.preempted_by}
        if kept.ranking is None:
            return details
        totals, scores = kept.ranking.totals, kept.ranking.scores
        best = sorted(totals, key=lambda node: (-totals[node], node))[: self._best]
        return details | {
            "total": {node: totals[node] for node in best},
            "scores": {plugin: {node: of[node] for node in best} for plugin, of in scores.items()},
            "weights": {plugin: kept.ranking.weights[plugin] for plugin in scores},
        }
