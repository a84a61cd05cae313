"""The Controller record: one reconcile, and the mapping from changed objects to keys."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from services.api.identity import controller_identity
from services.api.meta import Document, Key, Resource, View
from services.api.resources import Kinds
from services.api.switches import Switches
from services.reconcile.actions import Action, Query, Result
from services.reconcile.interest import EVERYTHING, Interest

V = TypeVar("V", bound=View)


class Change(msgspec.Struct, Generic[V], frozen=True):
    """One change from an informer. `old` None: added; `new` None: deleted.

    `final_state_unknown`: a relist found the object gone; `old` is the last known state (C4).
    """

    old: V | None
    new: V | None
    rv: int = 0
    traceparent: str = ""
    final_state_unknown: bool = False

    @property
    def object(self) -> V:
        """The newest known state."""
        found = self.new if self.new is not None else self.old
        assert found is not None
        return found


class Lister(Protocol[V]):
    """Read-only access to an informer's cache of one kind."""

    def get(self, key: Key) -> V | None: ...
    def all(self, namespace: str = "") -> list[V]: ...
    def owned_by(self, uid: str) -> list[V]:
        """Return objects that have an owner reference to `uid`."""
        ...

    def document(self, key: Key) -> Document | None:
        """Return the whole document, freshly decoded; the caller may change its copy."""
        ...


class Listers(Protocol):
    """The caches of all kinds a controller declared; `kinds`: the known kinds."""

    @property
    def kinds(self) -> Kinds: ...
    @property
    def are_complete(self) -> bool:
        """Whether each cache has received its kind's state; a cache of a newly defined kind may not have."""
        ...

    def of(self, view: type[V]) -> Lister[V]: ...
    def any(self, resource: str) -> Lister[Any]:
        """Return the cache of a resource by wire name; its objects have at least `metadata`."""
        ...


def is_read(listers: Listers, resource: Resource) -> bool:
    """Whether this process reads objects of that kind: all kinds except those that only clients use."""
    return not resource.is_of_clients or is_cached(listers, resource.name)


def is_cached(listers: Listers, name: str) -> bool:
    """Whether the process follows the kind of that wire name for all its controllers."""
    try:
        listers.any(name)
    except KeyError:
        return False
    return True


@dataclass(frozen=True)
class Moment:
    """Time and inputs of a reconcile. `now_s` is monotonic, `wall_s` is for timestamps.

    `live` holds the answers to `Result.refresh`: None means the object does not exist. `listed` holds the answers
    to queries without a name, in the order of the server; `refused` the server's messages for queries that it
    forbids.
    """

    now_s: float
    wall_s: float
    live: Mapping[Query, View | None] = field(default_factory=dict)
    listed: Mapping[Query, tuple[View, ...]] = field(default_factory=dict)
    refused: Mapping[Query, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Watch(Generic[V]):
    """Watch of `view`: `keys` returns the keys of a change; it may also update the controller's memory.

    `AnyObject` means all kinds but events and secrets, and those that the controller asked for (`Result.follow`).
    `interest`: the changes that it is told.
    """

    view: type[V]
    keys: Callable[[Change[V], Listers], Iterable[Key]]
    interest: Interest = EVERYTHING


Reconcile = Callable[[Key, Listers, Moment], Result]
Sign = Callable[[bytes, Sequence[str], float, float], bytes]
"""Function that signs: `(certificate request in PEM, usages, seconds it is good for, wall clock)` to the
certificate in PEM.

Raises ValueError for an invalid request. It is a function, so that decisions stay free of keys and files.
"""
Failed = Callable[[Key, Action, str], None]
"""Function called for each refused or skipped action: `(key, action, reason)`.

A refusal's reason is the Status's reason and message, `Forbidden: pods "a" is forbidden: …`; see
`refusal_message`.
"""


def refusal_message(reason: str) -> str:
    """Return only the message of a refusal, as upstream's Events and conditions show it."""
    head, _, message = reason.partition(": ")
    return message if message and head.isalpha() else reason


@dataclass(frozen=True)
class Controller:
    """One controller. `identity` is its user name at the API server; "": derived from the controller's name.

    `owns`: a change of such an object leads to its controller owner's key, when that owner is of the reconciled
    kind. `reconciles` None: keys come only from its own watches. `period_s`: the interval at which the key `("",
    "")` is reconciled too (scans). `reads`: kinds only listed. `on_failed` lets memories such as expectations be
    rolled back. `gives_up`: a write that the server refuses for good is not tried again. `queue` and `reporter`:
    the work queue's name in metrics and the source of its events; "": derived from `name`. `metrics`: further
    metrics, read at a scrape.
    """

    name: str
    reconciles: type[View] | None
    reconcile: Reconcile
    identity: str = ""
    owns: tuple[type[View], ...] = ()
    watches: tuple[Watch[Any], ...] = ()
    reads: tuple[type[View], ...] = ()
    period_s: float | None = None
    failed: Failed | None = None
    workers: int = 1
    gives_up: bool = True
    queue: str = ""
    reporter: str = ""
    metrics: Callable[[], Mapping[str, float]] = dict

    @property
    def user(self) -> str:
        """The user name that it acts as."""
        return self.identity or controller_identity(self.name).user


@dataclass(frozen=True)
class Registration:
    """Registration of a controller: a folder of `services/controllers` defines it as `CONTROLLER`.

    Its rights are in `role.yaml` beside. `build`: returns the controller with an empty memory. `start_order`: its
    place among the others, ties by name; a run with a given seed repeats only with a fixed order. `is_wanted`:
    whether it runs with these switches. `is_for_rest`: whether only clients of REST need its work; a mesh without
    REST runs without it and its watches. `by_default`: whether `*` includes it; a controller that only external
    clients need runs only when it is named, like upstream's that are disabled by default.
    """

    name: str
    build: Callable[[Switches], Controller]
    start_order: int = 100
    is_wanted: Callable[[Switches], bool] = lambda _: True
    by_default: bool = True
    is_for_rest: bool = False
    build_signing: Callable[[Switches, Sign], Controller] | None = None
    """Alternative `build`, used if the process has a certificate authority."""
