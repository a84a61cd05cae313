"""What is stored, rebuilt from `store.commit` lines: the truth that invariants hold everything against.

Memory is bounded by the live objects and a window of changes, as the server's own is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from services.api.resources import resources
from services.api.statehash import MODULUS, version_summand
from services.telemetry.eventlog import Line

WINDOW = 20_000
"""Changes of one kind that can be looked back on; twice as many are kept for a moment."""

Key = tuple[str, str]


class JobCounts(msgspec.Struct, frozen=True, gc=False):
    """What a Job has counted. `exact`: nothing that ends may be left out."""

    succeeded: int = 0
    failed: int = 0
    uncounted: tuple[str, ...] = ()
    finished: bool = False
    exact: bool = False


class Stored(msgspec.Struct, frozen=True, gc=False):
    """One object at one version, as far as commit lines tell. `requests` and `allocatable` are None when not told.

    `group`: the pod group a pod names; `min_count`: of a pod group, 0 for one that is no gang. `claims`: names of the
    claims a pod uses. Of a claim: `granted`, its devices, None while it has none; `nodes` that can use them, None where
    that is not told; `consumers`, the uids of who may; `is_generated`, made for one pod.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    rv: int
    sha256: str
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
    is_generated: bool = False

    @property
    def is_over(self) -> bool:
        """Whether a pod has ended for good."""
        return self.phase in ("Succeeded", "Failed")


Matches = Callable[[Stored], bool]


class Commit(msgspec.Struct, frozen=True, gc=False):
    """One change. `content`: the object at this version, for a removal its last content."""

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
    has_facts: bool
    is_replayed: bool
    lease_epoch: str = ""

    @property
    def kind(self) -> str:
        """The object's kind."""
        return self.content.kind

    @property
    def after(self) -> Stored | None:
        """What is stored from now on; None after a removal."""
        return None if self.type == "DELETED" else self.content

    def seen_by(self, matches: Matches) -> str:
        """Return what the change is to a watch: ADDED, MODIFIED, DELETED or "" (W7)."""
        was = self.before is not None and matches(self.before)
        now = self.type != "DELETED" and matches(self.content)
        return ("MODIFIED" if was else "ADDED") if now else ("DELETED" if was else "")


class Table:
    """All objects of one kind and its latest changes, oldest first. `dropped`: changes already forgotten."""

    def __init__(self) -> None:
        self.objects: dict[Key, Stored] = {}
        self.changes: list[Commit] = []
        self.dropped = 0
        self.oldest_rv = 0
        """Nothing can be said of versions below."""

    def add(self, commit: Commit) -> None:
        """Take the newest change."""
        key = (commit.content.namespace, commit.content.name)
        if commit.type == "DELETED":
            self.objects.pop(key, None)
        else:
            self.objects[key] = commit.content
        self.changes.append(commit)
        if len(self.changes) > 2 * WINDOW:
            self.oldest_rv = self.changes[WINDOW - 1].rv
            self.dropped += WINDOW
            del self.changes[:WINDOW]

    def at(self, rv: int, matches: Matches) -> dict[Key, Stored] | None:
        """Return the matching objects as they were at `rv`; None when that is too long ago."""
        if rv < self.oldest_rv:
            return None
        found = {key: stored for key, stored in self.objects.items() if matches(stored)}
        for commit in self._after(rv):
            key = (commit.content.namespace, commit.content.name)
            if commit.before is not None and matches(commit.before):
                found[key] = commit.before
            else:
                found.pop(key, None)
        return found

    def _after(self, rv: int) -> Iterator[Commit]:
        """Yield the changes above `rv`, newest first."""
        for commit in reversed(self.changes):
            if commit.rv <= rv:
                return
            yield commit

    def position_after(self, rv: int) -> int:
        """Return the number of the first change above `rv`, counted from the beginning of time."""
        position = self.dropped + len(self.changes)
        for _ in self._after(rv):
            position -= 1
        return position

    def hash_at(self, rv: int, matches: Matches) -> str | None:
        """Return the hash that a cache of the matching objects has at `rv`; None when that is too long ago."""
        found = self.at(rv, matches)
        if found is None:
            return None
        total = sum(version_summand(s.kind, s.namespace, s.name, s.rv) for s in found.values())
        return f"{total % MODULUS:064x}"


class View:
    """Everything stored, by kind. `rv`: the newest version; `commit`: the change last taken, None if it was known."""

    def __init__(self) -> None:
        self.rv = 0
        self.commit: Commit | None = None
        self.is_news = False
        """Whether the line last taken told of a change that was not known yet."""
        self._tables: dict[str, Table] = {}
        self._by_rv: dict[int, Commit] = {}
        self._kinds = {name: resource.kind for name, resource in resources().items()}
        self._resources = {resource.kind: name for name, resource in resources().items()}

    def table(self, kind: str) -> Table:
        """Return the table of a kind."""
        table = self._tables.get(kind)
        if table is None:
            table = self._tables[kind] = Table()
        return table

    def kind_of(self, resource: str) -> str:
        """Return the kind of a wire name, or ""."""
        return self._kinds.get(resource, "")

    def resource_of(self, kind: str) -> str:
        """Return the wire name of a kind, or ""."""
        return self._resources.get(kind, "")

    def at(self, rv: int) -> Commit | None:
        """Return the change with that version, if it is still remembered."""
        return self._by_rv.get(rv)

    def get(self, kind: str, namespace: str, name: str) -> Stored | None:
        """Return what is stored under that name."""
        table = self._tables.get(kind)
        return table.objects.get((namespace, name)) if table is not None else None

    def forget(self) -> None:
        """Begin anew: a volatile store has lost everything."""
        self._tables.clear()
        self._by_rv.clear()
        self.rv, self.commit = 0, None

    def take(self, line: Line) -> None:
        """Take one `store.commit` line. A replayed one that is known already changes nothing."""
        assert line.obj is not None
        rv, data = line.rv or 0, line.data
        is_replayed = bool(data.get("replayed"))
        self.is_news = not (is_replayed and rv <= self.rv)
        if not self.is_news:
            self.commit = None
            return
        table = self.table(line.obj["kind"])
        before = table.objects.get((line.obj["ns"], line.obj["name"]))
        self.commit = commit = Commit(
            rv,
            str(data.get("type", "")),
            before,
            _stored(line, data, before),
            int(data.get("group_end") or rv),
            line.mono_ns / 1e9,
            line.identity,
            str(data.get("verb", "")),
            str(data.get("subresource", "")),
            line.req_id,
            "node" in data or line.obj["kind"] != "Pod",
            is_replayed,
            str(data.get("lease_epoch", "")),
        )
        table.add(commit)
        self._by_rv[rv] = commit
        self.rv = max(self.rv, rv)
        if len(self._by_rv) > 2 * WINDOW:
            for old in list(self._by_rv)[:WINDOW]:
                del self._by_rv[old]


def _stored(line: Line, data: dict[str, Any], before: Stored | None) -> Stored:
    obj = line.obj
    assert obj is not None
    same = before if before is not None and before.uid == obj["uid"] else None
    requests, allocatable = data.get("requests"), data.get("allocatable")
    finalizers, owners = data.get("finalizers"), data.get("owners")
    return Stored(
        obj["kind"],
        obj["ns"],
        obj["name"],
        obj["uid"],
        line.rv or 0,
        str(data.get("content_sha256", "")),
        str(data.get("node", "")),
        str(data.get("phase", "")),
        int(data.get("binding_generation", 0)),
        int(data.get("unbind_count", 0)),
        str(data.get("nominated", "")),
        str(data.get("deletion") or ""),
        tuple(finalizers) if finalizers else (),
        tuple(owners) if owners else (),
        requests if requests is not None else (same.requests if same else None),
        allocatable if allocatable is not None else (same.allocatable if same else None),
        int(data.get("observed", 0)),
        str(data.get("group") or (same.group if same else "")),
        int(data.get("min_count", 0)),
        msgspec.convert(data["job"], JobCounts) if "job" in data else None,
        tuple(data.get("claims") or ()),
        _maybe(data.get("granted")),
        _maybe(data.get("nodes")),
        tuple(data.get("consumers") or ()),
        bool(data.get("generated")),
    )


def _maybe(values: list[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(values)
