"""Actions of a decision on the API server, as values; the executor performs them.

Each is safe to repeat. Preconditions (`uid`, `resource_version`) let the server refuse stale actions.
`resource` is the wire name: `pods`, `replicasets.apps`.
"""

from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from services.api.meta import Document, Key, ObjectMeta, View
from services.api.resources import resource_of_view


@dataclass(frozen=True)
class Create:
    """Create `document`; AlreadyExists counts as done if the name was derived by the controller.

    With `subresource` the document is the body of that subresource of the object it names.
    """

    resource: str
    document: Document
    subresource: str = ""


@dataclass(frozen=True)
class Patch:
    """Patch an object or one of its subresources. `patch_type`: merge, strategic or json."""

    resource: str
    key: Key
    patch: Document | list[Document]
    subresource: str = ""
    patch_type: str = "merge"
    uid: str = ""
    resource_version: str = ""


@dataclass(frozen=True)
class Update:
    """Replace an object (or its status) by a whole document with its resourceVersion."""

    resource: str
    key: Key
    document: Document
    subresource: str = ""


OWN_WRITE: Final = "own write"
"""Placeholder for the version of a delete: the result of the preceding write, of the same decision and object."""


@dataclass(frozen=True)
class Delete:
    """Delete with preconditions. `grace_period_s` None means the kind's default; NotFound counts as done."""

    resource: str
    key: Key
    uid: str = ""
    resource_version: str = ""
    grace_period_s: int | None = None
    propagation: str = ""


class Related(msgspec.Struct, frozen=True):
    """The other object of an event."""

    kind: str
    api_version: str
    key: Key
    uid: str
    resource_version: str = ""


class RecordEvent(msgspec.Struct, frozen=True):
    """Record an Event about an object. `type`: Normal or Warning. The recorder aggregates it.

    `action`: the performed action, a field of events in events.k8s.io; `related`: the other object involved;
    `reporter`: the reporting component, if not the recorder's own; `field_path`: the part of the object concerned.
    """

    kind: str
    api_version: str
    key: Key
    uid: str
    reason: str
    message: str
    type: str = "Normal"
    action: str = ""
    related: Related | None = None
    reporter: str = ""
    field_path: str = ""
    resource_version: str = ""


Action = Create | Patch | Update | Delete | RecordEvent


@dataclass(frozen=True)
class Query:
    """A live read that a rule needs before it acts (C9).

    A key without a name lists its namespace (for cluster-scoped kinds, all objects). `resource`: wire name, for a
    view without a kind of its own (`AnyObject`). `may_be_refused`: without the right to read, the rule continues
    with the server's message (`Moment.refused`); `is_metric`: after any refusal. `label_selector` and
    `field_selector`: the selected objects, or the selected series of a metric.
    """

    view: type[View]
    key: Key
    resource: str = ""
    may_be_refused: bool = False
    is_metric: bool = False
    label_selector: str = ""
    field_selector: str = ""


@dataclass(frozen=True)
class Batch:
    """Actions performed in slow-start order: 1, 2, 4, 8 … at once; a failure stops after its batch
    (controllers 1.3). The rest is reported back as not performed."""

    actions: tuple[Action, ...]


@dataclass(frozen=True)
class Result:
    """Actions that reconcile wants, in order; then another reconcile after `requeue_after_s` if given.

    With `refresh`, nothing is performed: the manager reads these live and calls reconcile again. `error`: why the
    key is not done; the actions are performed, and then the key is retried with back-off. `follow`: kinds by wire
    name that the controller's watches of `AnyObject` must see from now on, although the process does not read them
    for all. They are followed with the controller's own rights, and the key is reconciled again once their state is
    known.
    """

    actions: tuple[Action | Batch, ...] = ()
    requeue_after_s: float | None = None
    refresh: tuple[Query, ...] = field(default=())
    error: str = ""
    follow: tuple[str, ...] = ()


NOTHING = Result()
NOT_PERFORMED = "not performed: an action before it failed"
"""Reason of an action that was not sent."""


class Described(Protocol):
    """A view with metadata."""

    @property
    def metadata(self) -> ObjectMeta:
        """Name and uid of the object that the Event is about."""
        ...


def event(about: Described, reason: str, message: str, *, warns: bool = False) -> RecordEvent:
    """Return the Event about an object of a registered kind."""
    kind, meta = resource_of_view(type(about)), about.metadata  # type: ignore[arg-type]  # a view, as it has metadata
    severity = "Warning" if warns else "Normal"
    return RecordEvent(kind.kind, kind.api_version, meta.key, meta.uid, reason, message, severity)


def earliest(*due_s: float | None) -> float | None:
    """Return the shortest wait; None if there is none."""
    return min((each for each in due_s if each is not None), default=None)
