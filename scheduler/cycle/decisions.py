"""Why a pod is where it is, or nowhere: the last cycle of each pod, kept in memory for `keplab explain`."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

from scheduler.cycle.result import Ranking
from services.api.meta import Key

DECISIONS_MAX: Final = 4096


@dataclass(slots=True)
class Decision:
    """One cycle. `rejected`: plugin to reason to nodes; `ranking`: the nodes that were compared."""

    uid: str
    attempt: int
    at_s: float
    outcome: str
    node: str = ""
    message: str = ""
    feasible_count: int = 0
    evaluated: int = 0
    rejected: dict[str, dict[str, int]] = field(default_factory=dict)
    ranking: Ranking | None = None
    nominated_node: str = ""
    victims: tuple[str, ...] = ()
    """Pods that were to leave for this one, as `namespace/name`."""
    preempted_by: str = ""

    def document(self) -> dict[str, Any]:
        """Return the part of `explain pod/…` that this cycle knows."""
        ranking = self.ranking
        return {
            "outcome": self.outcome,
            "node": self.node,
            "attempts": self.attempt,
            "feasible": list(ranking.names) if ranking is not None else [self.node] if self.node else [],
            "feasible_count": self.feasible_count,
            "evaluated": self.evaluated,
            "rejected": self.rejected,
            "scores": ranking.scores if ranking is not None else {},
            "final": ranking.totals if ranking is not None else {},
            "weights": dict(ranking.weights) if ranking is not None else {},
            "victims": list(self.victims),
            "preempted_by": self.preempted_by,
            "message": self.message,
            "nominated_node": self.nominated_node,
        }


class Decisions:
    """The newest decision of each pod; the longest undecided are dropped first."""

    def __init__(self) -> None:
        self._by_key: OrderedDict[Key, Decision] = OrderedDict()

    def keep(self, key: Key, decision: Decision) -> None:
        """Remember it as the pod's last."""
        self._by_key[key] = decision
        self._by_key.move_to_end(key)
        if len(self._by_key) > DECISIONS_MAX:
            self._by_key.popitem(last=False)

    def of(self, key: Key) -> Decision | None:
        """Return the pod's last decision."""
        return self._by_key.get(key)
