"""One dispatcher a kind: it looks once at a change, and tells only the watches that it concerns.

Most changes of a pod are of its status, and most pods are of one workload; some twenty controllers watch pods. Each
watch declares its interest (`services.reconcile.interest`), and the dispatcher compares each attribute once for all.

Invariant: a watch that is not told would have returned no key and remembered nothing new; what watches are told is in
the order in which they subscribed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from msgspec.structs import replace

from services.api.meta import AnyObject, ObjectMeta, Resource, View
from services.api.resources import resource_of_view
from services.reconcile.controller import Change
from services.reconcile.interest import Interest

Handler = Callable[[Change[Any]], None]
OwnerKind = tuple[str, str]
"""Kind and group of a controller."""
NO_OWNER: Final[OwnerKind] = ("", "")
_NO_UPDATE: Final = 1 << 62
"""The bit of a change that no update has."""
OTHER_OWNER: Final[OwnerKind] = ("*", "*")
"""A controller of a kind that no interest names."""


@dataclass(frozen=True)
class _Subscription:
    handler: Handler
    interest: Interest
    is_any: bool


@dataclass(frozen=True, slots=True)
class _Target:
    """A handler with what must have changed in an update, and what the object must have, as bits; 0: nothing."""

    handler: Handler
    changes: int
    has: int
    is_any: bool


class _Bits:
    """A bit for each attribute, in the order of the first request."""

    def __init__(self) -> None:
        self.getters: list[tuple[int, Callable[[Any], Any]]] = []
        self._bits: dict[str, int] = {}

    def of(self, *paths: str) -> int:
        """Return the bits of these attributes."""
        bits = 0
        for path in paths:
            if path not in self._bits:
                self._bits[path] = 1 << len(self._bits)
                self.getters.append((self._bits[path], attrgetter(path)))
            bits |= self._bits[path]
        return bits


class Dispatcher:
    """Tells the watches of one kind, and those of all kinds, of its changes."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._subscriptions: list[_Subscription] = []
        self._owners: dict[str, str] = {}
        """The kinds of controllers that interests name, with their groups."""
        self._targets: dict[OwnerKind, list[_Target]] = {}
        """By the kind of controller that an object has before and after its change."""
        self._all: list[_Target] = []
        self._changes, self._has = _Bits(), _Bits()

    def add(self, handler: Handler, interest: Interest, *, is_any: bool = False) -> None:
        """Tell a handler of changes from now on; `is_any`: as changes of `AnyObject`."""
        self._subscriptions.append(_Subscription(handler, interest, is_any))
        if interest.owner is not None:
            owner = resource_of_view(interest.owner)
            assert self._owners.setdefault(owner.kind, owner.group) == owner.group
        self._targets.clear()
        self._all = [self._of(each, each.interest.changes) for each in self._subscriptions]

    def on_change(self, change: Change[Any]) -> None:
        """Tell every handler that the change concerns."""
        old, new = change.old, change.new
        targets, changed = self._all, -1
        if new is not None:
            if self._owners:
                owner = self._owner_of(new.metadata)
                if (
                    old is None
                    or old.metadata.owner_references == new.metadata.owner_references
                    or (self._owner_of(old.metadata) == owner)
                ):
                    targets = self._targets.get(owner) or self._targets_of(owner)
            if old is not None and old.metadata.uid == new.metadata.uid:
                changed = 0
                for bit, value_of in self._changes.getters:
                    if value_of(old) != value_of(new):
                        changed |= bit
        held = 0
        for bit, value_of in self._has.getters:
            if (new is not None and value_of(new)) or (old is not None and value_of(old)):
                held |= bit
        any_change: Change[Any] | None = None
        for target in targets:
            if (target.changes and not target.changes & changed) or (target.has and not target.has & held):
                continue
            if not target.is_any:
                target.handler(change)
                continue
            if any_change is None:
                any_old = as_any(self._resource, old) if old is not None else None
                any_new = as_any(self._resource, new) if new is not None else None
                any_change = replace(change, old=any_old, new=any_new)
            target.handler(any_change)

    def _targets_of(self, owner: OwnerKind) -> list[_Target]:
        """Return whom objects concern that have a controller of this kind before and after the change."""
        chosen = []
        for subscription in self._subscriptions:
            interest = subscription.interest
            if owner == NO_OWNER:
                chosen.append(self._of(subscription, interest.orphan_changes or interest.changes))
            elif interest.owner is None or resource_of_view(interest.owner).kind == owner[0]:
                chosen.append(self._of(subscription, interest.changes))
        self._targets[owner] = chosen
        return chosen

    def _of(self, subscription: _Subscription, changes: tuple[str, ...]) -> _Target:
        interest = subscription.interest
        bits = self._changes.of(*changes)
        if interest.updates_of and self._resource.name not in interest.updates_of:
            bits = _NO_UPDATE
        has = self._has.of(interest.has) if interest.has else 0
        return _Target(subscription.handler, bits, has, subscription.is_any)

    def _owner_of(self, metadata: ObjectMeta) -> OwnerKind:
        if not metadata.owner_references:
            return NO_OWNER
        reference = metadata.controller
        if reference is None:
            return NO_OWNER
        group = self._owners.get(reference.kind)
        if group is None or reference.api_version.rpartition("/")[0] != group:
            return OTHER_OWNER
        return reference.kind, group


def as_any(resource: Resource, view: View) -> AnyObject:
    """Return an object with its metadata alone, and what kind it is of."""
    if isinstance(view, AnyObject) and view.kind:
        return view
    metadata: ObjectMeta = view.metadata  # type: ignore[attr-defined]
    return AnyObject(api_version=resource.api_version, kind=resource.kind, metadata=metadata)
