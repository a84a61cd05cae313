"""The caches that all controllers of a process share: one informer per kind, and all kinds read as one."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from services.api.kinds.customresourcedefinition import DEFINITIONS, CustomResourceDefinition, defined_resource
from services.api.meta import AnyObject, Document, Key, Resource, View
from services.api.resources import Kinds, resources
from services.api.seams import Seams
from services.client.informer import Informer
from services.client.store import meta_of
from services.reconcile.controller import Change, Lister, Listers

V = TypeVar("V", bound=View)

NOT_ANY = ("events", "secrets", DEFINITIONS)
"""Kinds not read as `AnyObject`: events are many, own nothing and have no owners; no controller may read
secrets; definitions are read only where custom kinds are followed.
"""


class Caches(Listers):
    """One informer per kind, shared by all controllers. `AnyObject` reads all kinds as one."""

    def __init__(self, seams: Seams, views: list[type[View]], *, follows_definitions: bool = False) -> None:
        """`follows_definitions`: whether `AnyObject` includes custom kinds."""
        clock, random, events = seams.clock, seams.random, seams.events
        self._informer_as = partial(Informer, clock=clock, random=random, events=events)
        self._informer_of = partial(self._informer_as, seams.transport.api())
        self._by_view: dict[type[View], Informer[Any]] = {
            view: self._informer_of(view) for view in views if view is not AnyObject
        }
        self.by_resource: dict[str, Informer[Any]] = {i.resource: i for i in self._by_view.values()}
        self._any: _AnyLister | None = None
        self._kinds = Kinds(are_followed=follows_definitions and AnyObject in views)
        self._any_handlers: list[Callable[[Change[Any]], None]] = []
        self._progress: list[Callable[[], None]] = []
        self._run: Callable[[Informer[Any]], asyncio.Task[None]] | None = None
        self._running: dict[str, asyncio.Task[None]] = {}
        self._were_complete = False
        """Every informer has taken its kind's state; none loses it, so that only a new one changes this."""
        self._apart: dict[tuple[str, str], Informer[AnyObject]] = {}
        self._api_of = seams.transport.api
        if AnyObject in views:
            for name, resource in resources().items():
                if name not in self.by_resource and name not in NOT_ANY and not resource.is_of_clients:
                    self.by_resource[name] = self._informer_of(AnyObject, resource=name, keep_documents=False)
            if self._kinds.are_followed:
                followed = self._informer_of(CustomResourceDefinition, keep_documents=False)
                self.by_resource[DEFINITIONS] = followed
                followed.on_change(self._on_definition)
            self._any = _AnyLister([(resources()[name], informer) for name, informer in self.by_resource.items()])

    @property
    def kinds(self) -> Kinds:
        """The known kinds."""
        return self._kinds

    @property
    def informers(self) -> list[Informer[Any]]:
        """Every informer; those of custom kinds and of single controllers come last."""
        return [*self.by_resource.values(), *self._apart.values()]

    @property
    def are_complete(self) -> bool:
        """Whether each informer has taken its kind's state."""
        if not self._were_complete:
            self._were_complete = all(informer.has_synced for informer in self.by_resource.values())
        return self._were_complete

    def start(self, run: Callable[[Informer[Any]], asyncio.Task[None]]) -> None:
        """Run every existing informer, and later those of newly defined kinds."""
        self._run = run
        for name, informer in self.by_resource.items():
            self._running[name] = run(informer)

    def _on_definition(self, change: Change[CustomResourceDefinition]) -> None:
        """Follow a kind from when it is served to when it is not."""
        name = change.object.metadata.name
        resource = defined_resource(change.new) if change.new is not None else None
        if name in resources():
            return
        known = self._kinds.get(name)
        if resource is not None:
            self._kinds.define(resource)
        if resource is not None and known is None:
            self._follow(resource)
        elif resource is None and known is not None:
            self._unfollow(name)

    def _follow(self, resource: Resource) -> None:
        assert self._any is not None, "definitions are followed for AnyObject alone"
        informer = self._informer_of(AnyObject, resource=resource, keep_documents=False)
        self.by_resource[resource.name] = informer
        self._were_complete = False
        self._any.sources.append((resource, informer))
        for handler in self._any_handlers:
            informer.on_change(_as_any_change(resource, handler))
        for callback in self._progress:
            informer.on_progress(callback)
        if self._run is not None:
            self._running[resource.name] = self._run(informer)

    def _unfollow(self, name: str) -> None:
        """Follow the kind no more; what may be left of it is no longer served, which does not make it deleted."""
        assert self._any is not None, "definitions are followed for AnyObject alone"
        informer = self.by_resource[name]
        if (task := self._running.pop(name, None)) is not None:
            task.cancel()
        del self.by_resource[name]
        self._any.sources[:] = [(each, found) for each, found in self._any.sources if found is not informer]
        self._kinds.forget(name)

    def follow_as(
        self, user: str, name: str, handlers: Sequence[Callable[[Change[Any]], None]], synced: Callable[[], None]
    ) -> None:
        """Follow a kind that is not read for all controllers, as this user; the handlers get only metadata.

        `synced` is called once the kind's state is known. Nothing happens when the user follows it already.
        """
        resource = self._kinds.get(name)
        if resource is None or (user, name) in self._apart or self._run is None:
            return
        informer = self._apart[user, name] = self._informer_as(
            self._api_of(user), AnyObject, resource=resource, keep_documents=False
        )
        for handler in handlers:
            informer.on_change(_as_any_change(resource, handler))
        waiting = [synced]

        def on_progressed() -> None:
            while waiting:
                waiting.pop()()

        informer.on_progress(on_progressed)
        self._running[f"{user} {name}"] = self._run(informer)

    def on_progress(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each batch of any informer."""
        self._progress.append(callback)
        for informer in self.by_resource.values():
            informer.on_progress(callback)

    def of(self, view: type[V]) -> Lister[V]:
        """Return the cache of a declared kind. Raises: KeyError for an undeclared one."""
        if view is AnyObject and self._any is not None:
            return cast("Lister[V]", self._any)
        return self._by_view[view].lister

    def any(self, resource: str) -> Lister[Any]:
        """Return the cache of a resource by wire name. Raises: KeyError for an undeclared one."""
        return self.by_resource[resource].lister

    def on_change(self, view: type[View], handler: Callable[[Change[Any]], None]) -> None:
        """Call `handler` with every change of that view."""
        if view is not AnyObject:
            self._by_view[view].on_change(handler)
            return
        assert self._any is not None
        self._any_handlers.append(handler)
        for resource, informer in self._any.sources:
            informer.on_change(_as_any_change(resource, handler))

    def silence_s(self, now: float) -> float:
        """Return for how long the quietest cache has received nothing from the server."""
        return now - min((informer.received_s for informer in self.informers), default=now)

    @property
    def newest_rv(self) -> int:
        """The newest version in any cache."""
        return max([informer.lister.reached_rv for informer in self.informers], default=0)


def _as_any(resource: Resource, view: View) -> AnyObject:
    if isinstance(view, AnyObject) and view.kind:
        return view
    return AnyObject(api_version=resource.api_version, kind=resource.kind, metadata=meta_of(view))


def _as_any_change(resource: Resource, handler: Callable[[Change[Any]], None]) -> Callable[[Change[Any]], None]:
    def as_any(view: View | None) -> AnyObject | None:
        return None if view is None else _as_any(resource, view)

    return lambda change: handler(replace(change, old=as_any(change.old), new=as_any(change.new)))


class _AnyLister:
    """All kinds read as one. A key names no kind, so `get` and `document` find nothing here."""

    def __init__(self, sources: list[tuple[Resource, Informer[Any]]]) -> None:
        self.sources = sources

    def get(self, key: Key) -> AnyObject | None:
        """Return None: ask the lister of the kind."""
        return None

    def all(self, namespace: str = "") -> list[AnyObject]:
        """Return the objects of all kinds, or those of one namespace."""
        return [_as_any(resource, view) for resource, i in self.sources for view in i.lister.all(namespace)]

    def owned_by(self, uid: str) -> list[AnyObject]:
        """Return objects of any kind that have an owner reference to `uid`."""
        return [_as_any(resource, view) for resource, i in self.sources for view in i.lister.owned_by(uid)]

    def document(self, key: Key) -> Document | None:
        """Return None: ask the lister of the kind."""
        return None
