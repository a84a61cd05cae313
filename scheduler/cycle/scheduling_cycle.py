"""The scheduling cycle: for one pod and the present nodes, it returns the chosen node or why none fits.

Serial and synchronous: nothing can change under it, so the live columns are the snapshot. With
opportunistic batching (KEP-5598) a pod of the same kind as the one before takes the next best node of that
pod's list. Source: scheduler-queue-and-cycles 4, 8.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from scheduler.cache.cache import Cache
from scheduler.cache.columns import Columns, Scores
from scheduler.cache.node_info import PodInfo
from scheduler.cache.nominator import Nominator
from scheduler.cycle.result import Ranking, Result, ScheduleResult, Unschedulable
from scheduler.framework.cycle_state import NO_NODES_AVAILABLE, NO_SEED, CycleError, CycleState, Diagnosis
from scheduler.framework.failures import failure_in
from scheduler.framework.runner import Feasible, Runner
from scheduler.framework.status import Code
from services.api.seams import Random

MIN_FEASIBLE: Final = 100
MIN_PERCENTAGE: Final = 5
EXTENDER: Final = "Extender"
"""The name under which extenders reject and score, as upstream's."""
REPORTED_SCORES: Final = 3
REPORTED_NODES_MAX: Final = 64
"""Maximal number of feasible nodes that are all kept in the decision record; of more, the best few."""
BATCH_AGE_MAX_S: Final = 0.5
SIT_OUT_MAX: Final = 64
"""Maximal number of cycles without a stored list for a kind whose nodes stay free; it doubles up to this."""
NO_HINT, HINT_USED, HINT_NOT_USED = "no_hint", "hint_used", "hint_not_used"


@dataclass(slots=True)
class Filtered:
    """A cycle after Filter. `own`: the row to which the pod is nominated, if it fits there; else -1."""

    state: CycleState
    found: Feasible
    evaluated: int
    own: int


class Opinion(Protocol):
    """The answers of extenders: points for each row (None: none), and rejected nodes."""

    @property
    def scores(self) -> Scores | None:
        """The points that are added to the totals."""
        ...

    def add_to(self, diagnosis: Diagnosis) -> None:
        """Add the rejected nodes and the reasons to the diagnosis."""
        ...


def nodes_to_find(node_count: int, percentage: int) -> int:
    """Return after how many feasible nodes the search ends; 0 percent is upstream's adaptive share."""
    if node_count < MIN_FEASIBLE or percentage >= 100:
        return node_count
    if percentage == 0:
        percentage = max(MIN_PERCENTAGE, 50 - node_count // 125)
    return max(MIN_FEASIBLE, node_count * percentage // 100)


@dataclass(slots=True)
class Rotation:
    """The start of the next sampled search, as a position in the visiting order, and the number of cycles.

    All profiles share it.
    """

    next_start: int = 0
    cycle: int = 0


@dataclass(slots=True)
class _Batch:
    """A list of next best nodes. `totals`: of the nodes left, negative for all others.

    `cursor`: how much of the columns' log is processed. `is_plain`: the pod's template alone decides where it
    fits.
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


@dataclass
class Batching:
    """One profile's list of next best nodes. `attempts` and `flushed` count by result and reason, for metrics.

    A full cycle stores its totals. When the next pod has the same signature, comes soon, and the node chosen
    before can take no more of the kind, the next best node is tried alone; it must still pass every filter.
    With `batching.validity` "unchanged" the list is dropped as soon as any other node changed: then the answer
    is the one a full cycle gives, ties included. With "age" only its age counts, as upstream.

    The signature comes from the row-pure plugins (the pod's template), its namespace and labels, and the `sign`
    of every other filter and score that does not skip; a plugin that can do neither makes the pod not
    batchable. (Upstream disables batching for the whole profile then.) If nodes still have capacity for more
    pods of a kind, no list is stored for that kind for a while. Source: scheduler-queue-and-cycles 8; upstream
    `pkg/scheduler/framework/runtime/batch.go`.
    """

    cache: Cache
    runner: Runner
    nominator: Nominator
    random: Random
    is_exact: bool
    _batch: _Batch | None = None
    _cycle: int = 0
    _spacious: int = -1
    _sits_out: int = 0
    _until: int = 0
    attempts: dict[str, int] = field(default_factory=dict)
    flushed: dict[str, int] = field(default_factory=dict)

    def hint(self, pod: PodInfo, now: float, cycle: int) -> tuple[int, CycleState] | None:
        """Return the next best row, with the state of its cycle; None: a full cycle is due."""
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
        row = int(rows[0] if len(rows) == 1 else rows[self.random.randrange(0, len(rows))])
        node = self.cache.columns.nodes[row]
        if node is None:
            self._flush("node_missing", NO_HINT)
            return None
        rivals = self.nominator.rivals(node.name, pod)
        if not self.runner.filter_beside(state, pod, node, rivals).is_success:
            self._flush("hint_not_feasible", HINT_NOT_USED)
            return None
        batch.totals[row] = -1.0
        batch.chosen, batch.pod, batch.cycle, batch.cursor = row, pod, cycle, len(self.cache.columns.log)
        self._count(HINT_USED)
        return row, state

    def _why_not(self, batch: _Batch, pod: PodInfo, state: CycleState, now: float) -> str:
        """Return why the list is not for this pod, or ""; the pod's PreFilter has run then."""
        columns = self.cache.columns
        if batch.cycle != self._cycle - 1:
            return "pod_skipped"
        if now - batch.made_at > BATCH_AGE_MAX_S:
            return "expired"
        if pod.pod.status.nominated_node_name or (self.is_exact and len(self.nominator)):
            return "pod_nominated"
        if batch.epoch != columns.epoch:
            return "node_missing"
        if self.is_exact and any(row != batch.chosen for row in columns.log[batch.cursor :]):
            return "node_changed"
        last = batch.pod
        if (
            self.runner.template_of(pod) != last.signature
            or pod.key.namespace != last.key.namespace
            or pod.metadata.labels != last.metadata.labels
        ):
            return "pod_incompatible"
        node = columns.nodes[batch.chosen]
        if node is None:
            return "node_missing"
        # While the node chosen last takes more of the kind it may still be the best.
        is_full = not self.runner.row_fits(state, pod, columns, batch.chosen)
        if not is_full and batch.is_plain:
            return "node_not_full"
        prepared = self.runner.pre_filter(state, pod, columns)
        fragments = self.runner.fragments(state, pod, of_scores=False)
        if fragments is None or prepared.rejection is not None or prepared.node_names is not None:
            return "pod_not_batchable"
        if fragments != batch.fragments:
            return "pod_incompatible"
        rivals = self.nominator.rivals(node.name, pod)
        is_full = is_full or not self.runner.filter_beside(state, pod, node, rivals).is_success
        return "" if is_full else "node_not_full"

    def store(self, pod: PodInfo, state: CycleState, feasible: Feasible, totals: Scores, row: int) -> None:
        """Store the totals of a full cycle for the pods that follow."""
        if self._cycle < self._until and pod.signature == self._spacious:
            return
        fragments = self.runner.fragments(state, pod, of_scores=True)
        known = feasible.remembered
        # Scores that are scaled by the best of all change on every node when the best node is full.
        is_scaled = self.is_exact and known is not None and any(known.varies)
        if fragments is None or feasible.prepared.node_names is not None or is_scaled:
            return
        columns = self.cache.columns
        is_plain, left = self.runner.has_only_row_filters(state), totals.copy()
        left[row] = -1.0
        log = len(columns.log)
        self._batch = _Batch(fragments, pod, left, row, state.now, self._cycle, columns.epoch, log, is_plain)

    def forget(self) -> None:
        """Drop the list, because the cycle that was to use or to store one has failed."""
        self._batch = None

    def _sit_out(self, pod: PodInfo) -> None:
        """Keep nothing for a while of a kind whose nodes are not full after one: its list would be of no use."""
        is_again = pod.signature == self._spacious
        self._sits_out = min(2 * self._sits_out, SIT_OUT_MAX) if is_again and self._sits_out else 1
        self._spacious, self._until = pod.signature if pod.signature is not None else -1, self._cycle + self._sits_out

    def _flush(self, reason: str, result: str) -> None:
        self._batch = None
        self.flushed[reason] = self.flushed.get(reason, 0) + 1
        self._count(result)

    def _count(self, result: str) -> None:
        self.attempts[result] = self.attempts.get(result, 0) + 1


@dataclass
class SchedulingCycle:
    """Chooses nodes. A sampled search begins where the former one, of any profile, ended (`rotation`).

    The cycle with extenders calls the steps `filter`, `narrow` and `choose` one by one.
    """

    cache: Cache
    runner: Runner
    nominator: Nominator
    random: Random
    percentage: int = 100
    rotation: Rotation = field(default_factory=Rotation)
    batching: Batching | None = None

    def schedule(self, pod: PodInfo, now: float, *, with_post_filter: bool = True) -> Result:
        """Return the node for the pod, or why there is none. Only the rotation and the batch change."""
        try:
            return self._schedule(pod, now, with_post_filter=with_post_filter)
        except Exception as error:
            return self.cycle_error(error)

    def cycle_error(self, error: Exception) -> CycleError:
        """Return the error of a cycle in which a plugin or other code raised; the batch is dropped."""
        if self.batching is not None:
            self.batching.forget()
        return CycleError(failure_in(error, self.runner.plugins_by_name).message)

    def _schedule(self, pod: PodInfo, now: float, *, with_post_filter: bool) -> Result:
        self.rotation.cycle += 1
        if self.batching is not None and self.cache.columns.slots:
            hinted = self.batching.hint(pod, now, self.rotation.cycle)
            if hinted is not None:
                return self.alone(hinted[0], hinted[1], 2)
        filtered = self.filter(pod, now)
        if isinstance(filtered, CycleError):
            return filtered
        if filtered.own >= 0:
            # The pod is nominated there, perhaps by ourselves: fitting is enough (KEP-5278).
            return self.alone(filtered.own, filtered.state, 1)
        self.narrow(filtered)
        return self.choose(pod, filtered, with_post_filter=with_post_filter)

    def filter(self, pod: PodInfo, now: float, seed: Mapping[str, Any] = NO_SEED) -> Filtered | CycleError:
        """Return all nodes that fit; `seed`: initial content of the cycle's state for plugins."""
        columns = self.cache.columns
        if not columns.slots:
            return CycleError(NO_NODES_AVAILABLE, is_rejection=True)
        state = CycleState(now)
        state.data.update(seed)
        state.seed = seed
        feasible = self.runner.filter(state, pod, columns, self.nominator)
        rejection = feasible.prepared.rejection
        if rejection is not None and rejection.code is Code.ERROR:
            return CycleError(f'running PreFilter plugin "{rejection.plugin}": {rejection.message}')
        if state.error:
            return CycleError(state.error)
        own = columns.slots.get(pod.pod.status.nominated_node_name, -1)
        return Filtered(state, feasible, columns.count, own if own >= 0 and feasible.mask[own] else -1)

    def narrow(self, filtered: Filtered) -> None:
        """Keep as many of the feasible nodes as the percentage of nodes to score requires."""
        if filtered.found.prepared.rejection is None and 0 <= self.percentage < 100:
            filtered.evaluated = self._sample(filtered.state, filtered.found)

    def choose(
        self, pod: PodInfo, filtered: Filtered, opinion: Opinion | None = None, *, with_post_filter: bool = True
    ) -> Result:
        """Return the best of the nodes left, or the result of PostFilter if there is none."""
        columns, runner, state, feasible = self.cache.columns, self.runner, filtered.state, filtered.found
        evaluated = filtered.evaluated
        count = int(np.count_nonzero(feasible.mask))
        if count == 0:
            diagnosis = runner.diagnose(state, pod, columns, feasible)
            if opinion is not None:
                opinion.add_to(diagnosis)
            post_filter = runner.post_filter(state, pod, columns, diagnosis) if with_post_filter else None
            if post_filter is not None and post_filter.retry_with is not None:
                # What extenders think is of this cycle: with their answers another one would have to be asked for.
                again = self._retry(pod, state.now, post_filter.retry_with) if opinion is None else None
                if isinstance(again, ScheduleResult):
                    return again
                post_filter = runner.post_filter(state, pod, columns, diagnosis)
            return Unschedulable(diagnosis, state, post_filter)
        if count == 1:
            return self.only(int(np.argmax(feasible.mask)), state, evaluated)
        state.scored = feasible.mask
        totals, status = runner.score(state, pod, columns, feasible)
        if not status.is_success:
            return CycleError(status.message)
        extra = opinion.scores if opinion is not None else None
        if extra is not None:
            totals = np.where(feasible.mask, totals + extra, -1.0)
        best = (totals == totals.max()).nonzero()[0]
        # Upstream replaces the k-th tie with probability 1/k; one uniform draw is the same lottery.
        row = int(best[0] if len(best) == 1 else best[self.random.randrange(0, len(best))])
        if self.batching is not None and opinion is None:
            self.batching.store(pod, state, feasible, totals, row)
        rows = _rows_to_report(row, best, feasible, count)
        nodes = columns.nodes
        by_plugin, weights = runner.scores_of(state, feasible, rows), runner.weights
        if extra is not None:
            by_plugin, weights = {**by_plugin, EXTENDER: extra[rows]}, {**weights, EXTENDER: 1}
        names = tuple([node.name for r in rows.tolist() if (node := nodes[r]) is not None])
        return ScheduleResult(_name(columns, row), state, evaluated, count, Ranking(names, by_plugin, weights))

    def _retry(self, pod: PodInfo, now: float, seed: Mapping[str, Any]) -> Result:
        """Return what another cycle decides that starts with what PostFilter changed in memory."""
        filtered = self.filter(pod, now, seed)
        if isinstance(filtered, CycleError):
            return filtered
        if filtered.own >= 0:
            return self.alone(filtered.own, filtered.state, 1)
        self.narrow(filtered)
        return self.choose(pod, filtered, with_post_filter=False)

    def alone(self, row: int, state: CycleState, evaluated: int) -> ScheduleResult:
        """Return a node that was evaluated alone, without any comparison."""
        state.visited = np.array([row], np.intp)
        return self.only(row, state, evaluated)

    def only(self, row: int, state: CycleState, evaluated: int) -> ScheduleResult:
        """Return the only node left; scoring it would change nothing."""
        return ScheduleResult(_name(self.cache.columns, row), state, evaluated, 1)

    def _sample(self, state: CycleState, feasible: Feasible) -> int:
        """Keep the first feasible nodes in visiting order, as many as are wanted; return how many were visited."""
        order = self.cache.order()
        total = len(order)
        wanted = nodes_to_find(total, self.percentage)
        start = self.rotation.next_start % total
        rotated: NDArray[np.intp] = np.concatenate([order[start:], order[:start]])
        hits = np.flatnonzero(feasible.mask[rotated])
        processed = int(hits[wanted - 1]) + 1 if len(hits) >= wanted else total
        self.rotation.next_start = (start + processed) % total
        state.visited = rotated[:processed]
        if len(hits) > wanted:
            mask = np.zeros_like(feasible.mask)
            mask[rotated[hits[:wanted]]] = True
            feasible.mask, feasible.is_narrowed = mask, True
        return processed


def _name(columns: Columns, row: int) -> str:
    node = columns.nodes[row]
    assert node is not None, f"row {row} was chosen but has no node"
    return node.name


def _rows_to_report(row: int, best: NDArray[np.intp], found: Feasible, count: int) -> NDArray[np.intp]:
    if count <= REPORTED_NODES_MAX:
        return np.flatnonzero(found.mask)
    others = [r for r in best[:REPORTED_SCORES].tolist() if r != row]
    return np.array([row, *others[: REPORTED_SCORES - 1]], np.intp)
