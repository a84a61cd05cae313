"""The answers of row-pure plugins for each distinct pod template, cached and kept up to date.

A template's answers are recomputed (one node at a time) only for rows that changed since: usually the one
node to which the last pod went. That is what makes a cycle independent of the number of nodes, except for
finding the best.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from scheduler.cache.columns import Columns, Mask, Scores
from scheduler.cache.node_info import PodInfo
from scheduler.framework.cycle_state import CycleState, Diagnosis
from scheduler.framework.plugin import implements
from scheduler.framework.status import Code, Status
from scheduler.framework.vectorized import VectorFilterPlugin, VectorScorePlugin
from services.api.lru import LRU

REMEMBERED_TEMPLATES_MAX: Final = 16
SIGNATURES_MAX: Final = 65536
CHANGED_ROWS_MAX: Final = 48
"""Number of changed rows above which all nodes at once are cheaper than one at a time."""


class Forms:
    """Calls each plugin in the form it has: for all nodes at once, or node by node."""

    def __init__(self, plugins: Iterable[Any]) -> None:
        # Asking a protocol costs microseconds; ask once.
        self.vector_filters: set[str] = set()
        self._vector_scores: set[str] = set()
        for plugin in plugins:
            if implements(plugin, VectorFilterPlugin):
                self.vector_filters.add(plugin.name)
            if implements(plugin, VectorScorePlugin):
                self._vector_scores.add(plugin.name)

    def passing_rows(self, state: CycleState, pod: PodInfo, columns: Columns, plugin: Any, alive: Mask) -> Mask | None:
        """Return the `alive` rows that pass; None when the plugin passes all.

        After an error no further node is tried: the error is noted in the state, and no row passes.
        """
        if plugin.name in self.vector_filters:
            passed: Mask | None = plugin.filter_all(state, pod, columns)
            return passed
        mask = alive.copy()
        for row in np.flatnonzero(alive):
            node = columns.nodes[row]
            status = plugin.filter(state, pod, node) if node is not None else None
            if status is not None and status.code is Code.ERROR:
                state.error = f'running "{plugin.name}" filter plugin: {status.message}'
                mask[:] = False
                break
            if status is None or not status.is_success:
                mask[row] = False
        return mask

    def scores(self, state: CycleState, pod: PodInfo, columns: Columns, plugin: Any, mask: Mask) -> Scores | int:
        """Return the raw scores of the rows in the mask; a number when all have the same."""
        if plugin.name in self._vector_scores:
            result: Scores | int = plugin.score_all(state, pod, columns)
            return result
        scores = np.zeros(columns.capacity)
        for row in np.flatnonzero(mask):
            node = columns.nodes[row]
            if node is not None:
                scores[row] = plugin.score(state, pod, node)
        return scores

    def explain(
        self, diagnosis: Diagnosis, state: CycleState, pod: PodInfo, columns: Columns, plugin: Any, refused: Mask
    ) -> None:
        """Put into the diagnosis why a plugin refused these rows."""
        if plugin.name in self.vector_filters:
            for refusal in plugin.explain_all(state, pod, columns, refused):
                diagnosis.refuse(plugin.name, (refusal.reason,), refusal.code, refusal.mask)
            return
        rows_by_status: dict[Status, Mask] = {}
        for row in np.flatnonzero(refused):
            node = columns.nodes[row]
            assert node is not None
            rows_by_status.setdefault(plugin.filter(state, pod, node), columns.full(False))[row] = True
        for status, rows in rows_by_status.items():
            diagnosis.refuse(plugin.name, status.reasons, status.code, rows)


class RowPlugins(NamedTuple):
    """The row-pure plugins of a runner: scores that need no normalisation and scores that do, with their weights."""

    filters: Sequence[Any]
    scores: Sequence[Any]
    normalized: Sequence[Any]


@dataclass(slots=True)
class Remembered:
    """Cached answers of the row-pure plugins for one template; `cursor`: how much of the log is processed."""

    epoch: int
    cursor: int
    mask: Mask
    raw: list[Scores]
    total: Scores
    """Weighted sum of the row-pure scores that need no normalisation."""
    ranked: Scores
    """`total` where the mask holds, -1 elsewhere: its maximum is the winner when nothing else scores."""
    varies: list[bool]
    """For each normalised plugin, whether its raw scores differ from 0 anywhere."""


class Templates:
    """The cached answers of a profile's row-pure plugins."""

    def __init__(self, row_pure: Sequence[Any], forms: Forms) -> None:
        self._row_pure = row_pure
        self._forms = forms
        self._signatures: dict[Hashable, int] = {}
        self._made = 0
        self._remembered: LRU[int, Remembered] = LRU(REMEMBERED_TEMPLATES_MAX)

    def recall(self, state: CycleState, pod: PodInfo, columns: Columns, asked: RowPlugins) -> Remembered:
        """Return the row-pure answers for the pod's template, brought up to date by the plugins in `asked`."""
        signature = self.signature(pod)
        known = self._remembered.get(signature)
        log = columns.log
        if known is not None and known.epoch == columns.epoch:
            changed = len(log) - known.cursor
            if changed == 0:
                return known
            if changed <= CHANGED_ROWS_MAX:
                for row in dict.fromkeys(log[known.cursor :]):
                    self._refresh(asked, known, state, pod, columns, row)
                known.cursor = len(log)
                self._remembered.use(signature)
                return known
        known = self._compute(asked, state, pod, columns)
        self._remembered.put(signature, known)
        return known

    def signature(self, pod: PodInfo) -> int:
        """Return the template's number: equal for pods that every row-pure plugin treats alike."""
        signature = pod.signature
        if signature is None:
            if len(self._signatures) >= SIGNATURES_MAX:
                self._signatures.clear()
                self._remembered.clear()
            key = tuple([p.row_signature(pod) for p in self._row_pure])
            signature = self._signatures.get(key)
            if signature is None:
                # Never a number twice: pods of before a clearing keep theirs.
                self._made += 1
                signature = self._signatures[key] = self._made
            pod.signature = signature
        return signature

    def _compute(self, asked: RowPlugins, state: CycleState, pod: PodInfo, columns: Columns) -> Remembered:
        mask = columns.valid.copy()
        for plugin in asked.filters:
            passed = self._forms.passing_rows(state, pod, columns, plugin, mask)
            if passed is not None:
                mask &= passed
        total = np.zeros(columns.capacity)
        raws: list[Scores] = []
        for enabled in (*asked.scores, *asked.normalized):
            scores = self._forms.scores(state, pod, columns, enabled.plugin, columns.valid)
            is_same = isinstance(scores, int)
            raws.append(np.full(columns.capacity, float(scores)) if is_same else np.array(scores, np.float64))
        for enabled, raw in zip(asked.scores, raws, strict=False):
            total += raw * enabled.weight
        varies = [bool(raw.any()) for raw in raws[len(asked.scores) :]]
        ranked = np.where(mask, total, -1.0)
        return Remembered(columns.epoch, len(columns.log), mask, raws, total, ranked, varies)

    def _refresh(
        self, asked: RowPlugins, known: Remembered, state: CycleState, pod: PodInfo, columns: Columns, row: int
    ) -> None:
        node = columns.nodes[row]
        fits = node is not None
        if node is not None:
            for plugin in asked.filters:
                if plugin.filter(state, pod, node).code is not Code.SUCCESS:
                    fits = False
                    break
        known.mask[row] = fits
        if node is None:
            known.ranked[row] = -1.0
            return
        total, i = 0, 0
        for enabled in asked.scores:
            score = enabled.plugin.score(state, pod, node)
            known.raw[i][row] = score
            total += score * enabled.weight
            i += 1
        for j, enabled in enumerate(asked.normalized):
            score = enabled.plugin.score(state, pod, node)
            known.raw[i][row] = score
            if score:
                known.varies[j] = True
            i += 1
        known.total[row] = total
        known.ranked[row] = total if fits else -1.0
