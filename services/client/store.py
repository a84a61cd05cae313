"""Cache of one kind: typed views, and the newest JSON of each object.

A pure machine: it takes changes and reports which ones were new. It never moves an object backwards, even if
the stream, a relist or a late direct reply brings an older state (guarantees C2).
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar

import msgspec

from services.api.errors import UNREADABLE
from services.api.kinds.pod import Pod
from services.api.meta import Document, Key, ObjectMeta, OwnerReference, View
from services.client.shared_parts import share_parts
from services.client.statehash import MODULUS, version_summand
from services.reconcile.controller import Change

V = TypeVar("V", bound=View)
Handler = Callable[[Change[V]], None]

SHARED_MAX: Final = 64
"""Number of bodies whose views other stores of this process may share; a change reaches all of them soon."""
_shared: dict[tuple[type[View], int], tuple[bytes, View]] = {}
"""View by its type and the identity of its bytes, the newest last. Views are frozen, so who holds one cannot tell."""

_shared_keys: dict[Key, Key] = {}
"""Keys of the newest objects, so that the stores of this process hold one key for an object."""

ENDED: Final = ("Succeeded", "Failed")
"""Phases of pods that have ended."""

TOMBSTONE_S = 300.0
"""Seconds for which a deleted key is remembered: the server's window (guarantees 0)."""


class _RunningSum:
    """An order-independent hash over objects: a running sum, updated for each changed object."""

    def __init__(self, summand: Callable[[Key], int | None]) -> None:
        """`summand`: what an object adds now, below 2^256; None: it is not held."""
        self._summand = summand
        self._summands: dict[Key, int] = {}
        self._total = 0
        self.changed: dict[Key, None] = {}

    def discard(self, key: Key) -> None:
        """Take the object out.

        One that came and went between two looks at the sum is not; without this a store whose sum is never asked for,
        as without an event log, would remember every name there ever was.
        """
        if key in self._summands:
            self.changed[key] = None
        else:
            self.changed.pop(key, None)

    def hexdigest(self) -> str:
        """Return the sum, 64 hex digits. What changed since the last call is hashed once, however often it changed."""
        for key in self.changed:
            self._total -= self._summands.pop(key, 0)
            if (summand := self._summand(key)) is not None:
                self._summands[key] = summand
                self._total += summand
        self.changed.clear()
        self._total %= MODULUS
        return f"{self._total:064x}"


class Item(msgspec.Struct, frozen=True):
    """One object of a list: its JSON, key, version and traceparent."""

    key: Key
    rv: int
    body: bytes
    traceparent: str = ""


def meta_of(view: View) -> ObjectMeta:
    """Return the metadata that every view of a whole object has."""
    found: ObjectMeta = view.metadata  # type: ignore[attr-defined]
    return found


class Store(Generic[V]):
    """Objects by key, in the order they were first seen; implements `reconcile.Lister`.

    Invariant: for a key, the version held or the tombstone left only grows. The exception is a `replace` whose own
    version is below the seen one: then the server's history began anew.
    """

    def __init__(
        self,
        view: type[V],
        *,
        kind: str = "",
        keep_documents: bool = True,
        matches: Callable[[Document], bool] | None = None,
        now: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Create an empty store.

        `matches`: whether a document offered from outside the stream belongs here. `now`: monotonic seconds, for the
        age of tombstones.
        """
        self.view = view
        self.kind = kind
        self._decoder = msgspec.json.Decoder(view)
        self._is_of_pods = issubclass(view, Pod)
        self._keep_documents = keep_documents
        self._matches = matches
        self._now = now
        self._views: dict[Key, V] = {}
        self._rvs: dict[Key, int] = {}
        self._bodies: dict[Key, bytes] = {}
        self._namespaces: dict[str, dict[Key, V]] = {}
        self._owned: dict[str, dict[Key, None]] = {}
        self._tombstones: dict[Key, tuple[int, float]] = {}
        self._handlers: list[Handler[V]] = []
        self._states = _RunningSum(self._state_of)
        self._versions = _RunningSum(self._version_of)
        self._offered_rv = 0
        self.reached_rv = 0
        """The version this store is known to have reached: everything up to it has been applied."""
        self.undecodable_total = 0
        self.stale_total = 0

    def get(self, key: Key) -> V | None:
        """Return the object, or None."""
        return self._views.get(key)

    def all(self, namespace: str = "") -> list[V]:
        """Return all objects, or those of one namespace."""
        if not namespace:
            return list(self._views.values())
        return list(self._namespaces.get(namespace, {}).values())

    def keys(self) -> list[Key]:
        """Return the keys of all objects."""
        return list(self._views)

    def owned_by(self, uid: str) -> list[V]:
        """Return objects that have an owner reference to `uid`."""
        return [self._views[key] for key in self._owned.get(uid, ())]

    def rv(self, key: Key) -> int:
        """Return the cached version of the object; 0 when it is not cached."""
        return self._rvs.get(key, 0)

    def document(self, key: Key) -> Document | None:
        """Return the whole document, freshly decoded; the caller may change its copy."""
        body = self._bodies.get(key)
        return None if body is None else msgspec.json.decode(body, type=dict[str, Any])

    def __len__(self) -> int:
        return len(self._views)

    def __contains__(self, key: Key) -> bool:
        return key in self._views

    def on_change(self, handler: Handler[V]) -> None:
        """Call `handler` with every change from now on, in order; it must not wait."""
        self._handlers.append(handler)

    def put(self, key: Key, rv: int, body: bytes, traceparent: str = "") -> None:
        """Store this state of the object if it is newer than the known one.

        An unreadable body is skipped and counted; the earlier state stays (V11).
        """
        if rv <= self._rvs.get(key, 0) or (self._tombstones and rv <= self._tombstones.get(key, (0, 0.0))[0]):
            self.stale_total += 1
            return
        of_body = (self.view, id(body))
        if (held := _shared.get(of_body)) is not None and held[0] is body:
            new: V = held[1]  # type: ignore[assignment]
        else:
            try:
                new = self._decoder.decode(body)
            except UNREADABLE:
                self.undecodable_total += 1
                return
            if self._is_of_pods and new.status.phase in ENDED:  # type: ignore[attr-defined]
                share_parts(new)  # it may be kept for hours, and changes no more
            _shared[of_body] = (body, new)
            if len(_shared) > SHARED_MAX:
                del _shared[next(iter(_shared))]
        old = self._views.get(key)
        if old is None:
            key = _shared_keys.setdefault(key, key)
            if len(_shared_keys) > SHARED_MAX:
                del _shared_keys[next(iter(_shared_keys))]
        self._views[key] = new
        self._rvs[key] = rv
        self._versions.changed[key] = None
        if self._keep_documents:
            self._bodies[key] = body
            self._states.changed[key] = None
        self._namespaces.setdefault(key.namespace, {})[key] = new
        before: tuple[OwnerReference, ...] = () if old is None else old.metadata.owner_references  # type: ignore[attr-defined]
        after: tuple[OwnerReference, ...] = new.metadata.owner_references  # type: ignore[attr-defined]
        if before != after:
            self._move(key, [r.uid for r in before], [r.uid for r in after])
        if self._tombstones:
            self._tombstones.pop(key, None)
        change = Change(old, new, rv, traceparent)
        for handler in self._handlers:
            handler(change)

    def remove(self, key: Key, rv: int, traceparent: str = "", *, final_state_unknown: bool = False) -> None:
        """Remove the object unless a newer state is held, and leave a tombstone.

        Handlers get the earlier state as `old`, also when the object merely left the selector (W7).
        """
        if rv < self._rvs.get(key, 0) or rv <= self._tombstones.get(key, (0, 0.0))[0]:
            self.stale_total += 1
            return
        self._offered_rv = max(self._offered_rv, rv)
        self._bury(key, rv)
        old = self._views.get(key)
        if old is not None:
            self._discard(key, old)
            change = Change(old, None, rv, traceparent, final_state_unknown)
            for handler in self._handlers:
                handler(change)

    def replace(self, items: Iterable[Item], rv: int) -> None:
        """Store exactly these objects as of `rv`; vanished ones are reported with final state unknown (C4).

        A newer state that is already held (a direct reply above `rv`) stays.
        """
        is_new_history = rv < self.reached_rv
        listed: dict[Key, None] = {}
        for item in items:
            listed[item.key] = None
            if is_new_history:
                self._rvs[item.key] = 0
                self._tombstones.pop(item.key, None)
            if item.rv != self._rvs.get(item.key, 0):
                self.put(item.key, item.rv, item.body, item.traceparent)
        for key in [key for key in self._views if key not in listed]:
            if is_new_history:
                self._rvs[key] = 0
            self.remove(key, rv, final_state_unknown=True)
        if is_new_history:
            self._tombstones.clear()
        self.reached_rv = rv

    def offer(self, document: Document | bytes) -> None:
        """Store the reply to the process's own write before the stream brings it, if it is newer (C2, C7).

        Handlers are called as for the stream, which later skips this version.
        """
        body = document if isinstance(document, bytes) else msgspec.json.encode(document)
        if isinstance(document, bytes):
            document = msgspec.json.decode(document, type=dict[str, Any])
        metadata = document.get("metadata", {})
        key = Key(metadata.get("namespace", ""), metadata.get("name", ""))
        version = int(metadata.get("resourceVersion") or 0)
        if version <= self.reached_rv:
            return  # the stream has passed that point: this object is as it shows
        self._offered_rv = max(self._offered_rv, version)
        if self._matches is not None and not self._matches(document):
            self.remove(key, version)
        else:
            self.put(key, version, body)

    @property
    def is_ahead(self) -> bool:
        """Whether the store holds replies to own writes that the stream has not brought yet."""
        return self._offered_rv > self.reached_rv

    def versions_hash(self) -> str:
        """Return the hash over keys and versions held, 64 hex digits (`services.client.statehash`, I16)."""
        return self._versions.hexdigest()

    def _version_of(self, key: Key) -> int | None:
        rv = self._rvs.get(key)
        return version_summand(self.kind, key.namespace, key.name, rv) if rv is not None else None

    def state_hash(self) -> str:
        """Return the hash of guarantees 2.3 over the cached objects, 64 hex digits; empty without documents."""
        return self._states.hexdigest() if self._keep_documents else ""

    def _state_of(self, key: Key) -> int | None:
        body = self._bodies.get(key)
        if body is None:
            return None
        head = f"{self.kind}\0{key.namespace}\0{key.name}\0".encode()
        canonical = msgspec.json.encode(msgspec.json.decode(body), order="deterministic")
        return int.from_bytes(hashlib.sha256(head + canonical).digest(), "big")

    def _discard(self, key: Key, old: V) -> None:
        del self._views[key]
        del self._rvs[key]
        self._versions.discard(key)
        if self._bodies.pop(key, None) is not None:
            self._states.discard(key)
        in_namespace = self._namespaces[key.namespace]
        del in_namespace[key]
        if not in_namespace:
            del self._namespaces[key.namespace]
        self._move(key, [r.uid for r in meta_of(old).owner_references], [])

    def _move(self, key: Key, before: list[str], after: list[str]) -> None:
        """Keep `owned_by` true: these were the uids of the object's owners, these are."""
        for uid in before:
            if uid not in after and (keys := self._owned.get(uid)) is not None:
                keys.pop(key, None)
                if not keys:
                    del self._owned[uid]
        for uid in after:
            self._owned.setdefault(uid, {})[key] = None

    def _bury(self, key: Key, rv: int) -> None:
        now = self._now()
        self._tombstones.pop(key, None)  # so that it comes last
        self._tombstones[key] = (rv, now)
        while self._tombstones:  # oldest first; each burial pays for those that are over
            oldest = next(iter(self._tombstones))
            if self._tombstones[oldest][1] > now - TOMBSTONE_S:
                break
            del self._tombstones[oldest]


class _HeadMeta(View, frozen=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Head(View, frozen=True):
    metadata: _HeadMeta = _HeadMeta()


_HEAD = msgspec.json.Decoder(_Head)


def item_of(body: bytes) -> Item:
    """Return a listed object with its key and version. Raises: msgspec.DecodeError, ValueError."""
    metadata = _HEAD.decode(body).metadata
    return Item(Key(metadata.namespace, metadata.name), int(metadata.resource_version or 0), body)
