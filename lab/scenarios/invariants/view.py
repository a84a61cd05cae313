"""The stored state, rebuilt from `store.commit` lines: the reference for all invariants.

Memory is bounded by the live objects and a window of changes, as in the server.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache, partial
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from services.api.errors import ApiError
from services.api.resources import resources
from services.api.selectors import Term, parse_field_selector
from services.kwok.definitions import resources as kwok_resources
from services.telemetry.eventlog import Line

WINDOW = 20_000
"""Default number of changes of one kind that are kept; up to twice as many are kept temporarily."""

Key = tuple[str, str]
K = TypeVar("K")
V = TypeVar("V")


class Recent(dict[K, V]):
    """A dict that drops its older half once it has more than twice `kept` entries."""

    def __init__(self, kept: int) -> None:
        super().__init__()
        self._kept = kept

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        if len(self) > 2 * self._kept:
            for old in list(self)[: self._kept]:
                del self[old]


class JobCounts(msgspec.Struct, frozen=True, gc=False):
    """Counters of a Job. `exact`: the counters must include every end of a pod."""

    succeeded: int = 0
    failed: int = 0
    uncounted: tuple[str, ...] = ()
    finished: bool = False
    exact: bool = False


_IN_A_LINE = {
    "namespace": "ns", "sha256": "content_sha256", "generation": "binding_generation", "unbinds": "unbind_count",
    "is_generated": "generated",
}  # fmt: skip


_KEPT = ("requests", "allocatable", "group")
"""What a line says only when it changes."""


class Stored(msgspec.Struct, frozen=True, gc=False, rename=_IN_A_LINE):
    """One object at one version, as far as commit lines show it. `requests` and `allocatable` are None when not
    logged.

    `group`: the pod group that a pod names; `min_count`: minimum of a pod group, 0 if it is no gang.
    `claims`: names of the claims that a pod uses. For a claim: `granted`, its devices, None while it has
    none; `nodes`, the nodes that can use them, None if not logged; `consumers`, uids of the consumers;
    `workloads`, names of consumers that are no pods; `shared`, any pod with the claim may use it for them;
    `is_generated`, created for one pod.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    rv: int
    sha256: str = ""
    node: str = ""
    phase: str = ""
    generation: int = 0
    unbinds: int = 0
    nominated: str = ""
    deletion: str = ""
    finalizers: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    requests: dict[str, int] | None = None
    allocatable: dict[str, int] | None = None
    observed: int = 0
    group: str = ""
    min_count: int = 0
    job: JobCounts | None = None
    claims: tuple[str, ...] = ()
    granted: tuple[str, ...] | None = None
    nodes: tuple[str, ...] | None = None
    consumers: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    shared: bool = False
    is_generated: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the pod has Succeeded or Failed."""
        return self.phase in ("Succeeded", "Failed")


_FIELDS: dict[str, Callable[[Stored], str]] = {
    "metadata.name": lambda stored: stored.name,
    "metadata.namespace": lambda stored: stored.namespace,
    "spec.nodeName": lambda stored: stored.node,
    "status.phase": lambda stored: stored.phase,
    "status.nominatedNodeName": lambda stored: stored.nominated,
}


class Matches:
    """A selection as a predicate. `node`: the one node whose objects it may match; empty if there may be several."""

    def __init__(self, namespace: str, terms: Iterable[Term]) -> None:
        """Create the predicate for a namespace, "" for all, and terms over the fields of `Stored`."""
        self._namespace = namespace
        self._wanted = [(_FIELDS[term.key], term.values, term.op == "in") for term in terms]
        nodes = [term.values for term in terms if term.key == "spec.nodeName" and term.op == "in"]
        self.node = next((node for values in nodes if len(values) == 1 for node in values), "")

    def __call__(self, stored: Stored) -> bool:
        """Return whether the object is selected."""
        if self._namespace and stored.namespace != self._namespace:
            return False
        for value, values, is_in in self._wanted:  # noqa: SIM110  a generator costs more than the terms
            if (value(stored) in values) != is_in:
                return False
        return True


@cache
def matcher(namespace: str, field_selector: str, label_selector: str) -> Matches | None:
    """Return a predicate for this selection; None when commit lines do not show what it needs (labels, other
    fields).
    """
    if label_selector:
        return None
    try:
        terms = parse_field_selector(field_selector).terms if field_selector else ()
    except ApiError:
        return None
    if any(term.key not in _FIELDS for term in terms):
        return None
    return Matches(namespace, terms)


class Commit(msgspec.Struct, frozen=True, gc=False):
    """One change. `content`: the object at this version; for a removal, its last content."""

    rv: int
    type: str
    before: Stored | None
    content: Stored
    group_end: int
    at_s: float
    identity: str
    verb: str
    subresource: str
    req_id: str
    is_replayed: bool
    lease_epoch: str = ""

    @property
    def kind(self) -> str:
        """Kind of the object."""
        return self.content.kind

    @property
    def after(self) -> Stored | None:
        """The object after the change; None after a removal."""
        return None if self.type == "DELETED" else self.content

    def seen_by(self, matches: Matches) -> str:
        """Return the event type that the change has for a watch: ADDED, MODIFIED, DELETED or "" (W7)."""
        was = self.before is not None and matches(self.before)
        now = self.type != "DELETED" and matches(self.content)
        return ("MODIFIED" if was else "ADDED") if now else ("DELETED" if was else "")


_rv_of = attrgetter("rv")


class Table:
    """All objects of one kind and its latest changes, oldest first. `dropped`: number of changes already forgotten.

    Invariant: `_on` has the objects of each node, `_numbers` the kept changes of objects that were or are on it.
    """

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self.objects: dict[Key, Stored] = {}
        self.changes: list[Commit] = []
        self.dropped = 0
        self.oldest_rv = 0
        """Nothing can be said of versions below."""
        self._on: dict[str, dict[Key, Stored]] = {}
        self._numbers: dict[str, list[int]] = {}

    def add(self, commit: Commit) -> None:
        """Append the newest change."""
        content, before = commit.content, commit.before
        key = (content.namespace, content.name)
        number = self.dropped + len(self.changes)
        if before is not None and before.node:
            self._on[before.node].pop(key, None)
            if before.node != content.node:
                self._numbers[before.node].append(number)
        if commit.type == "DELETED":
            self.objects.pop(key, None)
        else:
            self.objects[key] = content
            if content.node:
                self._on.setdefault(content.node, {})[key] = content
        if content.node:
            self._numbers.setdefault(content.node, []).append(number)
        self.changes.append(commit)
        if len(self.changes) > 2 * self._window:
            self._forget_older(self._window)

    def _forget_older(self, count: int) -> None:
        self.oldest_rv = self.changes[count - 1].rv
        self.dropped += count
        del self.changes[:count]
        for numbers in self._numbers.values():
            del numbers[: bisect_left(numbers, self.dropped)]

    def at(self, rv: int, matches: Matches) -> dict[Key, Stored] | None:
        """Return the matching objects as of `rv`; None if it is older than the window."""
        if rv < self.oldest_rv:
            return None
        now = self._on.get(matches.node, {}) if matches.node else self.objects
        objects = {key: stored for key, stored in now.items() if matches(stored)}
        for commit in reversed(self.between(self.position_after(rv), self.dropped + len(self.changes), matches)):
            key = (commit.content.namespace, commit.content.name)
            if commit.before is not None and matches(commit.before):
                objects[key] = commit.before
            else:
                objects.pop(key, None)
        return objects

    def between(self, start: int, end: int, matches: Matches) -> list[Commit]:
        """Return the kept changes from number `start` to before `end`, without some that `matches` cannot concern."""
        dropped = self.dropped
        if not matches.node:
            return self.changes[max(0, start - dropped) : end - dropped]
        numbers = self._numbers.get(matches.node, [])
        first, last = bisect_left(numbers, start), bisect_left(numbers, end)
        return [self.changes[number - dropped] for number in numbers[first:last]]

    def position_after(self, rv: int, start: int = 0) -> int:
        """Return the number of the first change above `rv`, counted from the first change ever; it is `start` or
        later.
        """
        first = max(0, start - self.dropped)
        if first < len(self.changes) and self.changes[first].rv > rv:
            return self.dropped + first
        return self.dropped + bisect_right(self.changes, rv, lo=first, key=_rv_of)


class View:
    """All stored objects, by kind. `rv`: the newest version; `commit`: the last change, None if it was already
    known.

    `by_rv`: the latest changes; `kinds`: kind by wire name; `resources`: wire name by kind.
    """

    def __init__(self, window: int = WINDOW) -> None:
        """Create an empty view; `window`: number of changes of a kind that are kept."""
        self.rv = 0
        self.commit: Commit | None = None
        self.tables: defaultdict[str, Table] = defaultdict(partial(Table, window))
        self.by_rv: Recent[int, Commit] = Recent(window)
        known = (*resources().values(), *kwok_resources().values())
        self.kinds = {resource.name: resource.kind for resource in known}
        self.resources = {resource.kind: resource.name for resource in known}

    def get(self, kind: str, namespace: str, name: str) -> Stored | None:
        """Return the stored object of that name; None if there is none."""
        table = self.tables.get(kind)
        return table.objects.get((namespace, name)) if table is not None else None

    @property
    def objects(self) -> int:
        """Number of stored objects."""
        return sum(len(table.objects) for table in self.tables.values())

    def forget(self) -> None:
        """Clear the view: a volatile store has lost everything."""
        self.tables.clear()
        self.by_rv.clear()
        self.rv, self.commit = 0, None

    def take(self, line: Line) -> None:
        """Apply one `store.commit` line. A replayed line that is already known changes nothing."""
        assert line.obj is not None
        rv, data = line.rv or 0, line.data
        is_replayed = bool(data.get("replayed"))
        if is_replayed and rv <= self.rv:
            self.commit = None
            return
        table = self.tables[line.obj["kind"]]
        before = table.objects.get((line.obj["ns"], line.obj["name"]))
        self.commit = commit = Commit(
            rv,
            str(data.get("type", "")),
            before,
            _stored_object(line.obj, rv, data, before),
            int(data.get("group_end") or rv),
            line.mono_ns / 1e9,
            line.identity,
            str(data.get("verb", "")),
            str(data.get("subresource", "")),
            line.req_id,
            is_replayed,
            str(data.get("lease_epoch", "")),
        )
        table.add(commit)
        self.by_rv[rv] = commit
        self.rv = max(self.rv, rv)


def _stored_object(obj: dict[str, str], rv: int, data: dict[str, Any], before: Stored | None) -> Stored:
    """Return what a line says of the object; what is recorded only when it changes is as it was before."""
    stored = msgspec.convert({**data, **obj, "rv": rv}, Stored)
    if before is not None and before.uid == stored.uid:
        for name in _KEPT:
            if name not in data:
                msgspec.structs.force_setattr(stored, name, getattr(before, name))
    return stored
