"""The results of a scheduling cycle: a node with the ranking behind it, or why no node fits."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import msgspec

from scheduler.cache.columns import Scores
from scheduler.framework.cycle_state import CycleError, CycleState, Diagnosis
from scheduler.framework.plugin import PostFilterResult

ExtenderBind = Callable[[str, str], Awaitable[None]]
"""Makes an extender bind a pod to the named node. Raises: UnknownOutcome."""


class Ranking(msgspec.Struct, frozen=True):
    """The nodes worth reporting, each plugin's scores for them in the order of `names`, and the weights.

    It is kept as arrays: one decision in thousands is ever looked at.
    """

    names: tuple[str, ...]
    by_plugin: dict[str, Scores | int]
    weights: Mapping[str, int]

    @property
    def totals(self) -> dict[str, int]:
        """Return node name to weighted sum."""
        scores, weights = self.scores, self.weights
        return {name: sum(weights[plugin] * of[name] for plugin, of in scores.items()) for name in self.names}

    @property
    def scores(self) -> dict[str, dict[str, int]]:
        """Return plugin to node name to 0..100."""
        return {
            plugin: {name: scores if isinstance(scores, int) else int(scores[i]) for i, name in enumerate(self.names)}
            for plugin, scores in self.by_plugin.items()
        }


class ScheduleResult(msgspec.Struct, frozen=True):
    """The chosen node. `evaluated`: number of nodes looked at; `feasible`: number of those that fitted.

    `state` goes on to Reserve … PostBind. `ranking` explains the choice; None when one feasible node made
    scoring needless.
    """

    node_name: str
    state: CycleState
    evaluated: int
    feasible: int
    ranking: Ranking | None = None


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """No node fits; `post_filter` is the result of preemption, if it ran."""

    diagnosis: Diagnosis
    state: CycleState
    post_filter: PostFilterResult | None = None


Result = ScheduleResult | Unschedulable | CycleError
"""The end of a cycle."""
