"""Delete the dependents of deleted owners, or orphan them, or let the owner wait for them.

It reads all kinds except events and secrets. A key names its kind too: `pods/web-1` in a namespace. An owner
that is missing from the caches is looked up live before any dependent is deleted.
Source: controllers 7; upstream `pkg/controller/garbagecollector` (`garbagecollector.go`, `graph_builder.go`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from services.api.meta import AnyObject, Document, Key, ObjectMeta, OwnerReference, Resource
from services.api.switches import Switches
from services.reconcile.actions import NOTHING, OWN_WRITE, Action, Delete, Patch, Query, RecordEvent, Result
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch, is_read
from services.reconcile.interest import Interest
from services.reconcile.kind_keys import kind_key, split

UNREAD = ("events", "secrets")
"""Kinds that are not read (guarantees 8.3)."""
FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
INCOMPLETE_S = 0.5
ABSENT_MAX = 500
"""Maximum number of remembered owners that are gone for good; the oldest are forgotten first. A uid never
returns (I22).
"""
_OF_OWNERSHIP = Interest(changes=("metadata.owner_references", "metadata.deletion_timestamp", "metadata.finalizers"))


class State(Enum):
    """State of an owner reference."""

    SOLID = "solid"
    DANGLING = "dangling"
    WAITING = "waiting"
    """The owner is being deleted in the foreground and waits for its dependents."""


@dataclass
class _Owners:
    """Owner references by state; `unread`: live reads of owners that must come first."""

    by_state: dict[State, list[OwnerReference]] = field(default_factory=lambda: {state: [] for state in State})
    unread: list[Query] = field(default_factory=list)
    events: list[RecordEvent] = field(default_factory=list)


def _resource_name(view: AnyObject, listers: Listers) -> str:
    found = listers.kinds.of_kind(view.api_version, view.kind)
    return found.name if found is not None else ""


def is_waiting(metadata: ObjectMeta) -> bool:
    """Whether the object is being deleted in the foreground."""
    return metadata.deletion_timestamp is not None and FOREGROUND in metadata.finalizers


class GarbageCollector:
    """The controller's memory and its reconcile function."""

    def __init__(self) -> None:
        self._absent: dict[str, None] = {}
        self._homes: dict[str, str] = {}
        """Uid to namespace of every object seen: an owner elsewhere is worth an event."""

    def on_changed(self, change: Change[AnyObject], listers: Listers) -> list[Key]:
        """Return the keys to reconcile: this object, the dependents of a deleted one, owners that wait for it."""
        old, new = change.old, change.new
        if old is not None and new is not None and old.metadata.uid != new.metadata.uid:
            return [*self._on_deleted(old, listers), *self._came(new, listers)]
        if new is None:
            assert old is not None
            return self._on_deleted(old, listers)
        if old is None:
            return self._came(new, listers)
        before, after = old.metadata, new.metadata
        judged = before.owner_references, before.deletion_timestamp, before.finalizers
        if judged == (after.owner_references, after.deletion_timestamp, after.finalizers):
            return []
        keys = {kind_key(_resource_name(new, listers), *after.key): None}
        if is_waiting(after) and not is_waiting(before):
            keys.update(dict.fromkeys(_dependent_keys(after.uid, listers)))
        if before.owner_references != after.owner_references:
            keys.update(dict.fromkeys(_waiting_owner_keys(before, listers)))
        return list(keys)

    def _came(self, new: AnyObject, listers: Listers) -> list[Key]:
        metadata = new.metadata
        self._homes[metadata.uid] = metadata.namespace
        concerns = metadata.owner_references or metadata.deletion_timestamp is not None
        return [kind_key(_resource_name(new, listers), *metadata.key)] if concerns else []

    def _on_deleted(self, old: AnyObject, listers: Listers) -> list[Key]:
        metadata = old.metadata
        self._homes.pop(metadata.uid, None)
        self._remember_absent(metadata.uid)
        return [*_dependent_keys(metadata.uid, listers), *_waiting_owner_keys(metadata, listers)]

    def _remember_absent(self, uid: str) -> None:
        self._absent[uid] = None
        if len(self._absent) > ABSENT_MAX:
            del self._absent[next(iter(self._absent))]

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Finish a foreground deletion, delete an object whose owners are all gone, or remove dangling references."""
        resource, own_key = split(key)
        if listers.kinds.get(resource) is None or resource in UNREAD:
            return NOTHING
        if not listers.are_complete:
            # A kind was just defined: what of it belongs to whom is not known yet.
            return Result(requeue_after_s=INCOMPLETE_S)
        dependent = listers.any(resource).get(own_key)
        if dependent is None:
            return NOTHING
        metadata: ObjectMeta = dependent.metadata
        if metadata.deletion_timestamp is not None:
            return _finish(resource, metadata, listers)
        if not metadata.owner_references:
            return NOTHING
        owners = self._classify(resource, metadata, listers, moment)
        if owners.unread:
            return Result(refresh=tuple(owners.unread))
        return Result((*owners.events, *_decide(resource, metadata, owners, listers)))

    def _classify(self, resource: str, metadata: ObjectMeta, listers: Listers, moment: Moment) -> _Owners:
        owners = _Owners()
        for reference in metadata.owner_references:
            kind = listers.kinds.of_kind(reference.api_version, reference.kind)
            if kind is None and reference.uid in self._absent:
                # Its kind went right after it.
                owners.by_state[State.DANGLING].append(reference)
                continue
            if (
                kind is None
                or kind.name in UNREAD
                or (kind.namespaced and not metadata.namespace)
                or (kind.is_of_clients and not is_read(listers, kind))
            ):
                # A kind we do not serve or may not read, or an owner that cannot exist: never a reason to delete.
                owners.by_state[State.SOLID].append(reference)
                continue
            state = self._state(reference, kind, metadata, listers, moment)
            if isinstance(state, Query):
                owners.unread.append(state)
                continue
            owners.by_state[state].append(reference)
            if state is State.DANGLING and self._homes.get(reference.uid, metadata.namespace) != metadata.namespace:
                owners.events.append(_elsewhere(listers.kinds.get(resource), metadata, reference))
        return owners

    def _state(
        self, reference: OwnerReference, kind: Resource, metadata: ObjectMeta, listers: Listers, moment: Moment
    ) -> State | Query:
        """Return the owner's state, or how it must be read live first."""
        key = Key(metadata.namespace if kind.namespaced else "", reference.name)
        cached = listers.any(kind.name).get(key)
        if cached is not None and cached.metadata.uid == reference.uid:
            return State.WAITING if is_waiting(cached.metadata) else State.SOLID
        if reference.uid in self._absent:
            return State.DANGLING
        query = Query(AnyObject, key, kind.name)
        if query not in moment.live:
            return query
        live = moment.live[query]
        if isinstance(live, AnyObject) and live.metadata.uid == reference.uid:
            return State.WAITING if is_waiting(live.metadata) else State.SOLID
        if self._homes.get(reference.uid, metadata.namespace) == metadata.namespace:
            self._remember_absent(reference.uid)
        return State.DANGLING


def _decide(resource: str, metadata: ObjectMeta, owners: _Owners, listers: Listers) -> list[Action]:
    solid, waiting = owners.by_state[State.SOLID], owners.by_state[State.WAITING]
    if solid:
        if len(solid) == len(metadata.owner_references):
            return []
        kept = [msgspec.to_builtins(reference) for reference in solid]
        return [_patch(resource, metadata, {"ownerReferences": kept})]
    dependents = list(_dependents(metadata.uid, listers)) if waiting else []
    if dependents:
        # One that waits as well may wait for this object: then none of them would ever go.
        if any(is_waiting(dependent) for _, dependent in dependents):
            return _delete_unblocked(resource, metadata)
        return [_delete(resource, metadata, "Foreground")]
    policy = "Orphan" if ORPHAN in metadata.finalizers else "Foreground" if FOREGROUND in metadata.finalizers else ""
    return [_delete(resource, metadata, policy or "Background")]


def _finish(resource: str, metadata: ObjectMeta, listers: Listers) -> Result:
    """Remove the finalizer of a deleted object once its dependents are orphaned, or are gone."""
    if ORPHAN in metadata.finalizers:
        patches: list[Action] = []
        for name, dependent in _dependents(metadata.uid, listers):
            kept = [msgspec.to_builtins(r) for r in dependent.owner_references if r.uid != metadata.uid]
            patches.append(_patch(name, dependent, {"ownerReferences": kept}))
        # First the dependents, then the finalizer: a failure in between leaves the owner waiting.
        return Result((*patches, _without_finalizer(resource, metadata, ORPHAN)))
    blocks = (
        reference.uid == metadata.uid and reference.block_owner_deletion
        for _, dependent in _dependents(metadata.uid, listers)
        for reference in dependent.owner_references
    )
    if FOREGROUND in metadata.finalizers and not any(blocks):
        return Result((_without_finalizer(resource, metadata, FOREGROUND),))
    return NOTHING


def _dependents(uid: str, listers: Listers) -> Iterable[tuple[str, ObjectMeta]]:
    """Yield the wire name and metadata of every object that references `uid` as an owner."""
    for view in listers.of(AnyObject).owned_by(uid):
        yield _resource_name(view, listers), view.metadata


def _dependent_keys(uid: str, listers: Listers) -> list[Key]:
    return [kind_key(name, *metadata.key) for name, metadata in _dependents(uid, listers)]


def _waiting_owner_keys(metadata: ObjectMeta, listers: Listers) -> list[Key]:
    keys: list[Key] = []
    for reference in metadata.owner_references:
        kind = listers.kinds.of_kind(reference.api_version, reference.kind)
        if kind is None or kind.name in UNREAD or (kind.is_of_clients and not is_read(listers, kind)):
            continue
        key = Key(metadata.namespace if kind.namespaced else "", reference.name)
        owner = listers.any(kind.name).get(key)
        if owner is not None and owner.metadata.uid == reference.uid and is_waiting(owner.metadata):
            keys.append(kind_key(kind.name, *key))
    return keys


def _patch(resource: str, metadata: ObjectMeta, change: Document) -> Patch:
    # Lists are replaced whole, so only on the version they were read from.
    version = metadata.resource_version
    return Patch(resource, metadata.key, {"metadata": change}, uid=metadata.uid, resource_version=version)


def _without_finalizer(resource: str, metadata: ObjectMeta, finalizer: str) -> Patch:
    return _patch(resource, metadata, {"finalizers": [f for f in metadata.finalizers if f != finalizer]})


def _delete(resource: str, metadata: ObjectMeta, policy: str) -> Delete:
    return Delete(
        resource, metadata.key, uid=metadata.uid, resource_version=metadata.resource_version, propagation=policy
    )


def _delete_unblocked(resource: str, metadata: ObjectMeta) -> list[Action]:
    """Delete in the foreground what its own owners then no longer wait for (upstream's circle detection)."""
    if not any(reference.block_owner_deletion for reference in metadata.owner_references):
        return [_delete(resource, metadata, "Foreground")]
    references: list[Document] = [msgspec.to_builtins(reference) for reference in metadata.owner_references]
    for owner_reference in references:
        if owner_reference.get("blockOwnerDeletion"):
            owner_reference["blockOwnerDeletion"] = False
    delete = Delete(resource, metadata.key, uid=metadata.uid, resource_version=OWN_WRITE, propagation="Foreground")
    return [_patch(resource, metadata, {"ownerReferences": references}), delete]


def _elsewhere(kind: Resource | None, meta: ObjectMeta, reference: OwnerReference) -> RecordEvent:
    assert kind is not None, "objects that are judged are of a known kind"
    reason = "OwnerRefInvalidNamespace"
    text = (
        f"ownerRef [{reference.api_version}/{reference.kind}, namespace: {meta.namespace}, "
        f'name: {reference.name}, uid: {reference.uid}] does not exist in namespace "{meta.namespace}"'
    )
    return RecordEvent(kind.kind, kind.api_version, meta.key, meta.uid, reason, text, "Warning")


def _build(switches: Switches) -> Controller:
    memory = GarbageCollector()
    watches, reporter = (Watch(AnyObject, memory.on_changed, _OF_OWNERSHIP),), "garbage-collector-controller"
    return Controller("gc", AnyObject, memory.reconcile, watches=watches, workers=20, reporter=reporter)


CONTROLLER = Registration("gc", _build, start_order=7)
