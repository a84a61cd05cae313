"""Counts of matching pods on each node, kept up to date while pods come and go.

Spreading and pod affinity ask, in every cycle, how many pods match a selector on each node and in each
value of a node label. Counting anew would read every pod; here the answer to a question that was asked once
is updated by one addition per pod. The same is done for the terms that existing pods have about others.

Invariant: every answer equals a recount over the pods on rows of the columns.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from scheduler.cache.columns import Columns, Floats, Mask
from scheduler.cache.node_info import Identity, PodInfo, PodTerm
from services.api.lru import LRU
from services.api.selectors import Selector

TALLIES_MAX: Final = 256
"""Maximal number of kept questions; the least recently asked is dropped and, if asked again, counted anew."""
GROUPINGS_MAX: Final = 16

T = TypeVar("T")
Pair = tuple[str, str]


class Clause(NamedTuple):
    """Pods that the selector matches in these namespaces (None: in any)."""

    namespaces: frozenset[str] | None
    selector: Selector

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether the clause matches a pod of that namespace with these labels."""
        return (self.namespaces is None or namespace in self.namespaces) and self.selector.matches(labels)


class Question(NamedTuple):
    """A question for the number of pods that match every clause; terminating ones only with `with_terminating`."""

    clauses: tuple[Clause, ...]
    with_terminating: bool = True

    def matches(self, identity: Identity, labels: Mapping[str, str]) -> bool:
        """Whether a pod with this identity is counted."""
        if identity.is_terminating and not self.with_terminating:
            return False
        return all(clause.matches(identity.namespace, labels) for clause in self.clauses)


class Kind(NamedTuple):
    """The kind of an existing pod's term: `is_required`, or a weight, below zero for anti-affinity."""

    is_required: bool
    weight: int


REQUIRED_AFFINITY: Final = Kind(True, 1)
REQUIRED_ANTI_AFFINITY: Final = Kind(True, -1)


class Area(NamedTuple):
    """The rows that form domains (None: all), and a name that is unique to these rows."""

    name: Hashable
    mask: Mask


class Grouping:
    """Counts by the value of one node label. `ids` gives each row's value id, 0 where the label is missing.

    `counts[id]` is the count of a value; `floors[id]` the same, infinite where no row of the area has the
    value, so that its minimum is the least domain. `size`: the number of domains.
    """

    __slots__ = ("area", "counts", "floors", "ids", "key", "layout", "size")

    def __init__(self, key: str, area: Area | None) -> None:
        self.key = key
        self.area = area
        self.layout = -1
        self.size = 0
        self.ids: NDArray[np.intp] = np.zeros(0, np.intp)
        self.counts: Floats = np.zeros(0)
        self.floors: Floats = np.zeros(0)

    def count(self, rows: Floats, columns: Columns) -> None:
        """Recount from the number on each row."""
        self.ids, values = columns.label_ids(self.key)
        size = len(values) + 1
        inside = columns.valid if self.area is None else self.area.mask
        counts = np.bincount(self.ids, weights=np.where(inside, rows, 0.0), minlength=size)
        self.counts = np.asarray(counts, np.float64)
        present = np.bincount(self.ids[inside], minlength=size) > 0
        self.counts[0] = 0.0
        present[0] = False
        self.floors = np.where(present, self.counts, np.inf)
        self.size = int(np.count_nonzero(present))
        self.layout = columns.layout

    def add(self, row: int, change: int) -> None:
        """Add the change of one row."""
        value = self.ids[row]
        if value and (self.area is None or self.area.mask[row]):
            self.counts[value] += change
            self.floors[value] += change

    @property
    def least(self) -> float:
        """The smallest count of a domain; 0 without domains."""
        return float(self.floors.min()) if self.size else 0.0


class Tally:
    """A number on each row, and its sums by node labels as far as a plugin asked for them."""

    __slots__ = ("_columns", "_groupings", "rows", "total")

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._groupings: LRU[tuple[str, Hashable], Grouping] = LRU(GROUPINGS_MAX)
        self.rows: Floats = np.zeros(columns.capacity)
        self.total = 0

    def add(self, row: int, change: int) -> None:
        """Change the number on one row."""
        if row >= len(self.rows):
            self.rows = np.concatenate([self.rows, np.zeros(self._columns.capacity - len(self.rows))])
        self.rows[row] += change
        self.total += change
        layout = self._columns.layout
        for grouping in self._groupings.values():
            if grouping.layout == layout:
                grouping.add(row, change)

    def on_rows(self) -> Floats:
        """Return the number on each row of the columns; not to be changed."""
        if len(self.rows) < self._columns.capacity:
            self.rows = np.concatenate([self.rows, np.zeros(self._columns.capacity - len(self.rows))])
        return self.rows

    def by(self, key: str, area: Area | None = None) -> Grouping:
        """Return the sums by that label, over the area's rows."""
        name = (key, None if area is None else area.name)
        grouping = self._groupings.get(name)
        if grouping is None:
            grouping = Grouping(key, area)
            self._groupings.put(name, grouping)
        if grouping.layout != self._columns.layout:
            grouping.area = area
            grouping.count(self.on_rows(), self._columns)
        return grouping


class _Shelf(Generic[T]):
    """Items with selectors, found by the labels of a pod without testing every selector.

    An item whose selector requires one value of a label is stored under that pair: a pod without it cannot
    match.
    """

    def __init__(self) -> None:
        self._by_pair: dict[Pair | None, dict[Hashable, T]] = {}

    @staticmethod
    def place(selector: Selector) -> Pair | None:
        for term in selector.terms:
            if term.op == "in" and len(term.values) == 1:
                return (term.key, term.values[0])
        return None

    def put(self, place: Pair | None, key: Hashable, thing: T) -> None:
        self._by_pair.setdefault(place, {})[key] = thing

    def take(self, place: Pair | None, key: Hashable) -> None:
        things = self._by_pair[place]
        del things[key]
        if not things:
            del self._by_pair[place]

    def get(self, place: Pair | None, key: Hashable) -> T | None:
        things = self._by_pair.get(place)
        return None if things is None else things.get(key)

    def candidates(self, labels: Mapping[str, str]) -> Iterator[T]:
        """Yield what may match, in the order of the labels and then of arrival."""
        yield from self._by_pair.get(None, {}).values()
        if len(self._by_pair) > 1 or None not in self._by_pair:
            for pair in labels.items():
                yield from self._by_pair.get(pair, {}).values()


class TermTally(NamedTuple):
    """The number of existing pods on each row that have this term."""

    kind: Kind
    term: PodTerm
    tally: Tally


class PodIndex:
    """Pods by the identity that selectors see, the questions asked so far, and the terms of existing pods."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._populations: dict[Identity, dict[int, int]] = {}
        self._tallies: LRU[Question, Tally] = LRU(TALLIES_MAX)
        self._asked: _Shelf[tuple[Question, Tally]] = _Shelf()
        self._terms: _Shelf[TermTally] = _Shelf()
        self.term_count = 0
        """How many different terms existing pods have."""

    def add(self, pod: PodInfo, row: int) -> None:
        """Add a pod to the counts of its node's row."""
        rows = self._populations.setdefault(pod.identity, {})
        rows[row] = rows.get(row, 0) + 1
        self._follow(pod, row, 1)

    def remove(self, pod: PodInfo, row: int) -> None:
        """Remove a pod from the counts of its node's row."""
        identity = pod.identity
        rows = self._populations[identity]
        if rows[row] > 1:
            rows[row] -= 1
        else:
            del rows[row]
            if not rows:
                del self._populations[identity]
        self._follow(pod, row, -1)

    def _follow(self, pod: PodInfo, row: int, change: int) -> None:
        if self._tallies:
            # The identity, not the pod: what was counted in must be counted out, though its labels changed since.
            identity = pod.identity
            labels = dict(identity.labels)
            for question, tally in self._asked.candidates(labels):
                if question.matches(identity, labels):
                    tally.add(row, change)
        for kind, term in _kinds(pod):
            if term.selector is None:
                continue  # Selects nothing, ever.
            place, key = self._terms.place(term.selector), (kind, term)
            known = self._terms.get(place, key)
            if known is None:
                known = TermTally(kind, term, Tally(self._columns))
                self._terms.put(place, key, known)
                self.term_count += 1
            known.tally.add(row, change)
            if not known.tally.total:
                self._terms.take(place, key)
                self.term_count -= 1

    def tally(self, question: Question) -> Tally:
        """Return how many pods match on each row; the counts are kept up to date from now on."""
        tally = self._tallies.use(question)
        if tally is not None:
            return tally
        tally = Tally(self._columns)
        for identity, rows in self._populations.items():
            if question.matches(identity, dict(identity.labels)):
                for row, count in rows.items():
                    tally.add(row, count)
        dropped = self._tallies.put(question, tally)
        self._asked.put(self._place(question), question, (question, tally))
        if dropped is not None:
            self._asked.take(self._place(dropped[0]), dropped[0])
        return tally

    def _place(self, question: Question) -> Pair | None:
        places = (self._asked.place(clause.selector) for clause in question.clauses)
        return next((place for place in places if place is not None), None)

    def terms_about(self, pod: PodInfo, namespace_labels: Mapping[str, str]) -> list[TermTally]:
        """Return the terms of existing pods that match this pod, whose namespace has these labels."""
        namespace, labels = pod.key.namespace, pod.metadata.labels
        return [
            found for found in self._terms.candidates(labels) if found.term.matches(namespace, labels, namespace_labels)
        ]


def _kinds(pod: PodInfo) -> Iterable[tuple[Kind, PodTerm]]:
    terms = pod.terms
    for term in terms.required_affinity:
        yield REQUIRED_AFFINITY, term
    for term in terms.required_anti_affinity:
        yield REQUIRED_ANTI_AFFINITY, term
    for weight, term in terms.preferred_affinity:
        yield Kind(False, weight), term
    for weight, term in terms.preferred_anti_affinity:
        yield Kind(False, -weight), term
