"""Data between a format and a mesh: the objects of a snapshot and their changes, with their places. Pure.

A `Stream` is read once, from its beginning to its end, so that it may be longer than the memory.
Source: simulator 5.2, 11.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from services.api.meta import Document, Key, metadata_of
from services.api.resources import resources

Method = Literal["create", "patch", "delete", "update"]
METHODS: tuple[Method, ...] = ("create", "patch", "delete", "update")


class Refused(ValueError):
    """A file, or a document in it, that cannot be used; the message is the one line of simulator 11."""


class Place(NamedTuple):
    """Place of a document: its file, its number, first line and column, each from 1; 0 if it has none."""

    file: str
    number: int = 0
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        if not self.number:
            return self.file
        return f"{self.file}:document {self.number}" + (f" (line {self.line})" if self.line else "")


@dataclass(frozen=True)
class Placed:
    """An object of a snapshot, and its place."""

    document: Document
    where: str = ""

    @property
    def name(self) -> str:
        """Name of the object for people."""
        return title_of(self.document)


@dataclass(frozen=True)
class Change:
    """One change by a client, `at_s` seconds after the beginning.

    `resource` is the wire name (`pods`, `deployments.apps`). `document`: the whole object for create and update,
    the patch for patch, None for delete. `patch_type`: strategic, merge or json.
    """

    at_s: float
    method: Method
    resource: str
    namespace: str
    name: str
    document: Document | None = None
    patch_type: str = ""
    where: str = ""

    @property
    def key(self) -> Key:
        """The object's `(namespace, name)`."""
        return Key(self.namespace, self.name)

    @property
    def is_new_node(self) -> bool:
        """Whether the change creates a Node: a machine is added."""
        return self.resource == "nodes" and self.method == "create"

    def __str__(self) -> str:
        return f"{self.method} {self.resource} {self.key}"


@dataclass(frozen=True)
class Origin:
    """Origin of a stream: its format, and its start in epoch seconds, None if the file does not say it."""

    format: str
    started_wall_s: float | None = None


@dataclass(frozen=True)
class Runtime:
    """Run times of an owner's pods: the k-th pod of that owner and template has life `k mod len(lives)`.

    `owner`: `(kind with group, namespace, name)`. `template`: which of its templates, "" for any. A life is
    `(start, end)` in seconds after the beginning; `end` None: it has none.
    """

    owner: tuple[str, str, str]
    template: str = ""
    lives: tuple[tuple[float, float | None], ...] = ()


@dataclass(frozen=True)
class Stream:
    """A snapshot and its changes. Read `objects` before `changes`, which come in the order of their times.

    `runtimes`: for traces that say how long pods ran. `notes`: counts of what the reader left out; complete when
    both iterators have ended.
    """

    objects: Iterator[Placed]
    changes: Iterator[Change]
    origin: Origin
    runtimes: tuple[Runtime, ...] = ()
    notes: dict[str, int] = field(default_factory=dict)


def title_of(document: Mapping[str, Any]) -> str:
    """Return `Kind namespace/name` of a document, as far as it has them."""
    metadata = metadata_of(dict(document))
    kind = document.get("kind")
    key = Key(str(metadata.get("namespace") or ""), str(metadata.get("name") or metadata.get("generateName") or ""))
    return f"{kind if isinstance(kind, str) and kind else 'object'} {key}".rstrip()


def kind_of(resource: str) -> str:
    """Return the kind of a wire name; guess it from the plural if it is not built in."""
    found = resources().get(resource)
    return found.kind if found is not None else resource.partition(".")[0].removesuffix("s").capitalize()


def api_version_of(resource: str) -> str:
    """Return the apiVersion of a wire name; v1 of its group if it is not built in."""
    found = resources().get(resource)
    group = resource.partition(".")[2]
    return found.api_version if found is not None else f"{group}/v1" if group else "v1"
