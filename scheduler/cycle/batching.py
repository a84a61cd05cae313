"""Opportunistic batching: the next pod of the same kind takes the next best node of the last pod's list (KEP-5598).

A full cycle leaves its totals behind. When the next pod is signed alike, soon, and the node chosen before can take
no more of the kind, the next best node is tried alone; it must still pass every filter. With `batching.validity`
"unchanged" the list is dropped as soon as any other node changed: then the answer is the one a full cycle gives,
ties included. With "age" only its age counts, as upstream.

A pod is signed by the row-pure plugins (its template), by its namespace and labels, and by the `sign` of every other
filter and score that does not skip; one that can do neither makes the pod not batchable. (Upstream disables
batching for the whole profile then.) Nothing is kept, for a while, of a kind that leaves capacity free on its nodes.
Source: scheduler-queue-and-cycles 8; upstream `pkg/scheduler/framework/runtime/batch.go`.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from scheduler.cache.cache import Cache
from scheduler.cache.columns import Scores
from scheduler.cache.node_info import PodInfo
from scheduler.cache.nominator import Nominator
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.runner import Feasible, Runner
from services.api.seams import Random

AGE_MAX_S: Final = 0.5
SIT_OUT_MAX: Final = 64
"""Cycles for which nothing is kept of a kind that leaves capacity for more on its nodes; it doubles up to this."""
NO_HINT, HINT_USED, HINT_NOT_USED = "no_hint", "hint_used", "hint_not_used"


@dataclass(slots=True)
class _Batch:
    """`totals`: of the nodes left, negative for all others; `cursor`: how much of the columns' log it knows.

    `is_plain`: the pod's template alone decides where it fits.
    """

    fragments: tuple[Hashable, ...]
    pod: PodInfo
    totals: Scores
    chosen: int
    made_at: float
    cycle: int
    epoch: int
    cursor: int
    is_plain: bool


class Batching:
    """One profile's list. `attempts` and `flushed` count by result and reason, for metrics."""

    def __init__(self, cache: Cache, runner: Runner, nominator: Nominator, random: Random, *, is_exact: bool) -> None:
        self._cache = cache
        self._runner = runner
        self._nominator = nominator
        self._random = random
        self._is_exact = is_exact
        self._batch: _Batch | None = None
        self._cycle = 0
        self._spacious = -1
        self._sits_out, self._until = 0, 0
        self.attempts: dict[str, int] = {}
        self.flushed: dict[str, int] = {}

    # -- before a cycle --------------------------------------------------------------------------------

    def hint(self, pod: PodInfo, now: float, cycle: int) -> tuple[int, CycleState] | None:
        """Return the row to take, with the state of its cycle, or None: then a full cycle is due."""
        self._cycle = cycle
        batch = self._batch
        if batch is None:
            self._count(NO_HINT)
            return None
        state = CycleState(now)
        why_not = self._why_not(batch, pod, state, now)
        if why_not:
            self._flush(why_not, NO_HINT)
            if why_not == "node_not_full":
                self._sit_out(pod)
            return None
        best = float(batch.totals.max(initial=-1.0))
        if best < 0:
            self._flush("empty_list", NO_HINT)
            return None
        rows = (batch.totals == best).nonzero()[0]
        row = int(rows[0] if len(rows) == 1 else rows[self._random.randrange(0, len(rows))])
        node = self._cache.columns.nodes[row]
        if node is None:
            self._flush("node_missing", NO_HINT)
            return None
        rivals = self._nominator.rivals(node.name, pod)
        if not self._runner.filter_beside(state, pod, node, rivals).is_success:
            self._flush("hint_not_feasible", HINT_NOT_USED)
            return None
        self._take(batch, pod, row)
        self._count(HINT_USED)
        return row, state

    def _why_not(self, batch: _Batch, pod: PodInfo, state: CycleState, now: float) -> str:
        """Return why the list is not for this pod, or ""; the pod's PreFilter has run then."""
        columns = self._cache.columns
        if batch.cycle != self._cycle - 1:
            return "pod_skipped"
        if now - batch.made_at > AGE_MAX_S:
            return "expired"
        if pod.pod.status.nominated_node_name or (self._is_exact and len(self._nominator)):
            return "pod_nominated"
        if batch.epoch != columns.epoch:
            return "node_missing"
        if self._is_exact and any(row != batch.chosen for row in columns.log[batch.cursor :]):
            return "node_changed"
        last = batch.pod
        if (
            self._runner.template_of(pod) != last.signature
            or pod.key.namespace != last.key.namespace
            or pod.metadata.labels != last.metadata.labels
        ):
            return "pod_incompatible"
        node = columns.nodes[batch.chosen]
        if node is None:
            return "node_missing"
        # While the node chosen last takes more of the kind it may still be the best.
        is_full = not self._runner.row_fits(state, pod, columns, batch.chosen)
        if not is_full and batch.is_plain:
            return "node_not_full"
        prepared = self._runner.pre_filter(state, pod, columns)
        fragments = self._runner.fragments(state, pod, of_scores=False)
        if fragments is None or prepared.rejection is not None or prepared.node_names is not None:
            return "pod_not_batchable"
        if fragments != batch.fragments:
            return "pod_incompatible"
        rivals = self._nominator.rivals(node.name, pod)
        is_full = is_full or not self._runner.filter_beside(state, pod, node, rivals).is_success
        return "" if is_full else "node_not_full"

    # -- after a cycle ---------------------------------------------------------------------------------

    def store(self, pod: PodInfo, state: CycleState, found: Feasible, totals: Scores, row: int) -> None:
        """Keep the totals of a full cycle for the pods that follow."""
        if self._cycle < self._until and pod.signature == self._spacious:
            return
        fragments = self._runner.fragments(state, pod, of_scores=True)
        known = found.remembered
        # Scores that are scaled by the best of all change on every node when the best node is full.
        is_scaled = self._is_exact and known is not None and any(known.varies)
        if fragments is None or found.prepared.node_names is not None or is_scaled:
            return
        columns = self._cache.columns
        self._batch = _Batch(
            fragments,
            pod,
            totals.copy(),
            row,
            state.now,
            self._cycle,
            columns.epoch,
            len(columns.log),
            self._runner.has_only_row_filters(state),
        )
        self._batch.totals[row] = -1.0

    def _sit_out(self, pod: PodInfo) -> None:
        """Keep nothing for a while of a kind whose nodes are not full after one: its list would be of no use."""
        is_again = pod.signature == self._spacious
        self._sits_out = min(2 * self._sits_out, SIT_OUT_MAX) if is_again and self._sits_out else 1
        self._spacious, self._until = pod.signature if pod.signature is not None else -1, self._cycle + self._sits_out

    def _take(self, batch: _Batch, pod: PodInfo, row: int) -> None:
        batch.totals[row] = -1.0
        batch.chosen, batch.pod, batch.cycle = row, pod, self._cycle
        batch.cursor = len(self._cache.columns.log)

    # -- counting --------------------------------------------------------------------------------------

    def _flush(self, reason: str, result: str) -> None:
        self._batch = None
        self.flushed[reason] = self.flushed.get(reason, 0) + 1
        self._count(result)

    def _count(self, result: str) -> None:
        self.attempts[result] = self.attempts.get(result, 0) + 1
