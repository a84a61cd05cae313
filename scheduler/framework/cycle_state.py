"""The state of one cycle of one pod: plugins' data, and the diagnosis of their refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from scheduler.framework.status import Code, Status

NO_NODES_AVAILABLE: Final = "no nodes available to schedule pods"
TOO_MANY_PODS: Final = "Too many pods"
Mask = npt.NDArray[np.bool_]
NO_SEED: Final[Mapping[str, Any]] = {}


class AttemptRecord(Protocol):
    """Records the answers after a choice, for explanations."""

    def on_selected(self, node: str) -> None:
        """Record the node, before Reserve."""

    def add_answer(self, point: str, plugin: str, status: Status, timeout_s: float = 0.0) -> None:
        """Record a plugin's answer at reserve, permit, prebind or bind; `timeout_s`: how long Permit may wait."""

    def bind_failed(self, message: str) -> None:
        """Record that the bind of a plugin failed."""


class CycleState:
    """The data of plugins, by name, in one cycle of one pod, and the runner's own notes.

    `skip_filter` and `skip_score` name plugins that skip this pod's Filter and Score, `irrelevant` those that
    do not concern it. `alive` is, during Filter, the nodes that passed all earlier filters. `error`: why Filter
    could not be finished. `seed`: the initial content of `data`. `visited`: the rows that were visited, None
    for all. `scored`: the rows that were left for scoring, None without scoring. `record`: records the plugins'
    answers from Reserve on, None if they are not recorded. Source: upstream
    `pkg/scheduler/framework/cycle_state.go`.
    """

    __slots__ = (
        "alive",
        "data",
        "error",
        "irrelevant",
        "now",
        "record",
        "scored",
        "seed",
        "skip_filter",
        "skip_score",
        "visited",
    )

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.data: dict[str, Any] = {}
        self.skip_filter: set[str] = set()
        self.skip_score: set[str] = set()
        self.alive: Mask | None = None
        self.error = ""
        self.irrelevant: frozenset[str] = frozenset()
        self.seed = NO_SEED
        self.visited: npt.NDArray[np.intp] | None = None
        self.scored: Mask | None = None
        self.record: AttemptRecord | None = None

    def clone(self) -> CycleState:
        """Return a copy for a what-if; values with a `clone()` method are cloned, all others shared.

        State that a plugin's `add_pod` and `remove_pod` change must offer `clone`.
        """
        copy = CycleState(self.now)
        copy.data = {name: value.clone() if hasattr(value, "clone") else value for name, value in self.data.items()}
        copy.skip_filter, copy.skip_score = set(self.skip_filter), set(self.skip_score)
        copy.alive, copy.irrelevant = self.alive, self.irrelevant
        return copy


@dataclass(slots=True)
class Diagnosis:
    """The reasons why no node fitted. `rejected`: plugin to reason to number of nodes.

    `unresolvable`: rows that preemption cannot help. `rejectors` wake the pod by their events, `pending`
    plugins also spare it the back-off. `pre_filter_message` replaces the histogram. Source:
    scheduler-queue-and-cycles 4.2, 12.1.
    """

    node_count: int
    rejected: dict[str, dict[str, int]] = field(default_factory=dict)
    rejectors: set[str] = field(default_factory=set)
    pending: set[str] = field(default_factory=set)
    unresolvable: Mask = field(default_factory=lambda: np.zeros(0, bool))
    pre_filter_message: str = ""
    post_filter_message: str = ""

    def count(self, plugin: str, reason: str, nodes: int) -> None:
        """Add nodes that a plugin refused for a reason."""
        reasons = self.rejected.setdefault(plugin, {})
        reasons[reason] = reasons.get(reason, 0) + nodes

    def refuse(self, plugin: str, reasons: Iterable[str], code: Code, rows: Mask) -> None:
        """Charge the nodes of these rows to a plugin; without any it is not charged."""
        nodes = int(np.count_nonzero(rows))
        if not nodes:
            return
        for reason in reasons:
            self.count(plugin, reason, nodes)
        (self.pending if code is Code.PENDING else self.rejectors).add(plugin)
        if code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            self.unresolvable |= rows

    @property
    def message(self) -> str:
        """The text of the event and of the condition: the refusal, then PostFilter's result."""
        return f"{self.refusal} {self.post_filter_message}" if self.post_filter_message else self.refusal

    @property
    def refusal(self) -> str:
        """The filters' message: `0/5 nodes are available: 2 Insufficient cpu, …`."""
        histogram: Counter[str] = Counter()
        for reasons in self.rejected.values():
            histogram.update(reasons)
        # Sorted as strings, counts included, as upstream sorts them.
        lines = sorted(f"{nodes} {reason}" for reason, nodes in histogram.items())
        why = self.pre_filter_message or ", ".join(lines)
        return f"0/{self.node_count} nodes are available:" + (f" {why}." if why else "")


@dataclass(frozen=True, slots=True)
class CycleError:
    """The failure of a cycle: a plugin's error, or no node exists. `is_rejection` for the latter."""

    message: str
    is_rejection: bool = False
