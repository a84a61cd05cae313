"""What PreFilter and Filter leave for the rest of a cycle."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from scheduler.cache.columns import Mask, Scores
from scheduler.framework.nominated_pods import BlockedRows
from scheduler.framework.status import Status
from scheduler.framework.templates import Remembered


class Prepared(NamedTuple):
    """What PreFilter said: a rejection on all nodes, or perhaps the only nodes worth looking at and who named them."""

    rejection: Status | None
    node_names: tuple[str, ...] | None = None
    named_by: tuple[str, ...] = ()

    @property
    def elsewhere(self) -> str:
        """Why a node is none of `node_names`."""
        simultaneously = " simultaneously" if len(self.named_by) > 1 else ""
        return f"node(s) didn't satisfy plugin(s) [{' '.join(self.named_by)}]{simultaneously}"


@dataclass(slots=True)
class Feasible:
    """The rows that fit, or why none does."""

    mask: Mask
    remembered: Remembered | None
    is_narrowed: bool
    """Whether `mask` is a part of what is remembered."""
    prepared: Prepared
    refusals: list[tuple[Any, Mask | None]] = field(default_factory=list)
    scores: dict[str, Scores | int] = field(default_factory=dict)
    """What was added up of the plugins whose scores are not remembered ready for that, 0 to 100."""
    blocked: BlockedRows | None = None
    """Rows that nominations take away; None when there are none."""
