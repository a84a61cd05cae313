"""Data of a run for the measures of a scenario or a package: objects with their times, and lines. Pure.

Only what these measures read is kept. An object is its last document, with two additional entries:

* `at`: times in seconds since the run began; times of events that did not happen are absent. Every object
  has `created` and `gone`; pods also have `bound`, `running`, `ready`, `failed`, `rejected` (by a
  kubelet, for the first time) and `deleted` (its deletion was requested).
* `versions`: every version that was seen, oldest first: its document, with `at` and its duration in
  `seconds`.

Pods also have `role` (by which pods of two runs are compared), `nodes` (their names, in the order of
binds) and `queue` (seconds in `active`, `backoff`, `unschedulable` and `gated` of the scheduling queue).
Nodes have `requested`, `allocatable` and `utilization` by resource (cores, bytes, units), and `pods`,
their number, as of the end. A line is as in the event log, with `at`: its seconds since the run began.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from services.api.meta import Document
from services.telemetry.eventlog import Line


@dataclass(frozen=True)
class Followed:
    """Data to keep: resources by wire name as they are at the end, all that were ever created, every version of
    them; and events of the log.
    """

    at_end: frozenset[str] = frozenset()
    created: frozenset[str] = frozenset()
    versions: frozenset[str] = frozenset()
    events: frozenset[str] = frozenset()


@dataclass
class _ObjectHistory:
    """History of one object. `documents`: its versions with the time each was seen, or only the last."""

    created_s: float
    gone_s: float | None = None
    documents: list[tuple[float, Document]] = field(default_factory=list)


@dataclass
class Recorded:
    """Kept objects by resource and uid, in the order in which they were first seen; `duration_s` is set at the end."""

    wanted: Followed = field(default_factory=Followed)
    duration_s: float = 0.0

    def __post_init__(self) -> None:
        wanted = self.wanted
        self.followed = wanted.at_end | wanted.created | wanted.versions
        self._objects: dict[str, dict[str, _ObjectHistory]] = {name: {} for name in sorted(self.followed)}
        self._at_end: dict[str, list[Document]] = {}
        self._lines: list[Line] = []

    def observe(
        self, resource: str, uid: str, now_s: float, document: Callable[[], Document | None], *, is_gone: bool
    ) -> None:
        """Process a change of an object of a followed resource, seen at `now_s`."""
        known = self._objects[resource].get(uid)
        if known is None:
            known = self._objects[resource][uid] = _ObjectHistory(now_s)
        if is_gone:
            known.gone_s = now_s
        elif resource in self.wanted.versions:
            known.documents.append((now_s, document() or {}))
        elif resource in self.wanted.created:
            known.documents[:] = [(now_s, document() or {})]

    @property
    def events(self) -> Collection[str]:
        """The events that a measure reads."""
        return self.wanted.events

    def take(self, line: Line) -> None:
        """Keep a line of one of these events."""
        self._lines.append(line)

    def end(self, now_s: float, documents: Callable[[str], Iterable[Document]]) -> None:
        """Store the objects at the end of the run, before the mesh stops."""
        self.duration_s = now_s
        self._at_end = {name: list(documents(name)) for name in sorted(self.followed)}

    def at_end(self, resource: str) -> list[dict[str, Any]]:
        """Return the objects that were stored at the end."""
        known = self._objects[resource]
        return [self._with_times(resource, known.get(each["metadata"]["uid"]), each) for each in self._at_end[resource]]

    def created(self, resource: str) -> list[dict[str, Any]]:
        """Return all objects that ever existed, in their last version; only for a resource in `wanted.created`."""
        last = {each["metadata"]["uid"]: each for each in self._at_end[resource]}
        return [
            self._with_times(resource, known, last.get(uid) or known.documents[-1][1])
            for uid, known in self._objects[resource].items()
            if uid in last or known.documents
        ]

    def _with_times(self, resource: str, known: _ObjectHistory | None, document: Document) -> dict[str, Any]:
        if known is None:
            return {**document, "at": {}}
        at = {"created": known.created_s, **({"gone": known.gone_s} if known.gone_s is not None else {})}
        if resource not in self.wanted.versions:
            return {**document, "at": at}
        ends = [
            *(since_s for since_s, _ in known.documents[1:]),
            self.duration_s if known.gone_s is None else known.gone_s,
        ]
        versions = [
            {**each, "at": since_s, "seconds": end_s - since_s}
            for (since_s, each), end_s in zip(known.documents, ends, strict=True)
        ]
        return {**document, "at": at, "versions": versions}

    def lines(self, event: str, started_s: float) -> list[dict[str, Any]]:
        """Return the lines of that event; `started_s`: when the run began on the log's clock."""
        found = (line for line in self._lines if line.ev == event)
        return [{**_as_map(line), "at": line.mono_ns / 1e9 - started_s} for line in found]


def _as_map(line: Line) -> Mapping[str, Any]:
    """Return the line's fields that are set."""
    shown: dict[str, Any] = msgspec.to_builtins(line)
    return {name: value for name, value in shown.items() if value is not None}
