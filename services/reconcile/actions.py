"""Actions: what a decision asks of the API server, as values; the executor performs them.

Each is safe to repeat. Preconditions (`uid`, `resource_version`) let the server refuse what has
gone stale. `resource` is the wire name: `pods`, `replicasets.apps`.
"""

from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from services.api.meta import Document, Key, ObjectMeta, View
from services.api.resources import resource_of_view


@dataclass(frozen=True)
class Create:
    """Create `document`; AlreadyExists counts as done when the name was ours to derive.

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
    """Replace an object (or its status) by a whole document that carries its resourceVersion."""

    resource: str
    key: Key
    document: Document
    subresource: str = ""


OWN_WRITE: Final = "own write"
"""As the version of a delete: the one that the write before it, of the same decision and object, came to."""


@dataclass(frozen=True)
class Delete:
    """Delete with preconditions. `grace_period_s` None means the kind's default; NotFound is done."""

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
    """Record an Event about an object. `type`: Normal or Warning. Aggregated by the recorder.

    `action`: what was done, which events of events.k8s.io say; `related`: for or with which other object; `reporter`:
    who says it, if not the component that the recorder is for; `field_path`: which part of the object is meant.
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
    """A live read that a rule wants before it acts (C9).

    A key without a name lists its namespace (all of a kind without namespaces). `resource`: wire name,
    for a view that does not say its kind (`AnyObject`). `may_be_refused`: without the right to read, the rule goes on
    with what the server said (`Moment.refused`); `is_metric`: whatever the refusal is. `label_selector` and
    `field_selector`: which objects, or which series of a metric.
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
    """What reconcile wants done, in order; then look again after `requeue_after_s` if given.

    With `refresh`, nothing is performed: the manager reads these live and calls reconcile again. `error`: why the key
    is not done; the actions are performed, and then it is tried again with back-off. `follow`: kinds by wire name whose
    changes the controller's watches of `AnyObject` must see from now on, though the process does not read them for all:
    they are followed with the controller's own rights, and the key is looked at again once their state is known.
    """

    actions: tuple[Action | Batch, ...] = ()
    requeue_after_s: float | None = None
    refresh: tuple[Query, ...] = field(default=())
    error: str = ""
    follow: tuple[str, ...] = ()


NOTHING = Result()
NOT_PERFORMED = "not performed: an action before it failed"
"""The reason of an action that was not sent."""


class Described(Protocol):
    """A view with metadata."""

    @property
    def metadata(self) -> ObjectMeta:
        """Name and uid of what the Event is about."""
        ...


def event(about: Described, reason: str, message: str, *, warns: bool = False) -> RecordEvent:
    """Return the Event about an object of a registered kind."""
    kind, meta = resource_of_view(type(about)), about.metadata  # type: ignore[arg-type]  # a view, as it has metadata
    severity = "Warning" if warns else "Normal"
    return RecordEvent(kind.kind, kind.api_version, meta.key, meta.uid, reason, message, severity)


def earliest(*due_s: float | None) -> float | None:
    """Return the shortest of the waits that there are; None when there is none."""
    return min((each for each in due_s if each is not None), default=None)
