"""Watches of one server: their turn to begin, their first version, and their end when the credential has expired."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from apiserver_fake.storage.backlog import SMALL
from apiserver_fake.storage.watch_hub import Hub, Notify, Watcher
from apiserver_fake.storage.watch_starts import Place, Starts
from services.api.errors import ApiError, BadRequest, Unauthorized
from services.api.identity import LASTING, Credential, Identity
from services.api.meta import Resource
from services.api.wire import WatchRequest

EXPIRY_CHECK_S = 5.0
AUTH_EXPIRED = "AuthExpired"


class Watches:
    """Opens watches at the hub."""

    def __init__(
        self,
        hub: Hub,
        starts: Starts,
        *,
        find: Callable[[str], Resource],
        authorize: Callable[[Identity, WatchRequest], None],
        check: Callable[[Credential], None],
        confirm: Callable[[], Awaitable[object]] | None,
        on_open: Callable[[Watcher, WatchRequest], None] | None,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """`find`: returns the kind of a wire name; raises NotFound. `authorize` raises Forbidden; `check` raises
        Unauthorized for an invalid credential. `confirm` waits until this server knows the writes of other servers;
        None if there are no other servers. `on_open` is called when the first version of a watch is known. `spawn` runs
        a task for as long as the server runs.
        """
        self._hub, self._starts = hub, starts
        self._find, self._authorize, self._check = find, authorize, check
        self._confirm, self._on_open, self._spawn = confirm, on_open, spawn
        self._expiring: dict[Watcher, Credential] = {}
        """Open watches whose credential can expire, with that credential."""
        self._is_checking = False
        self._beginning: set[asyncio.Task[None]] = set()

    def needs_turn(self, identity: Identity, request: WatchRequest) -> bool:
        """Whether a watch begins with so many events that it must wait for a turn. Raises: ApiError for a refusal."""
        self._authorize(identity, request)
        return self._hub.size(self._find(request.resource), request) > SMALL

    async def begin(self, identity: Identity, request: WatchRequest) -> Place | None:
        """Wait for the turn of a watch with a long start, and return its place; None for a watch with a short
        start.

        Raises: ApiError when the watch is refused, TooManyRequests when its turn does not come.
        """
        return await self._starts.turn(identity.user) if self.needs_turn(identity, request) else None

    def open(self, identity: Identity, request: WatchRequest, notify: Notify) -> Watcher:
        """Begin a watch; `notify` is called whenever there are events to take. Raises: ApiError."""
        resource = self._find(request.resource)
        self._authorize(identity, request)
        if request.namespace and not resource.namespaced:
            raise BadRequest(f"{resource.plural} are not namespaced: namespace {request.namespace!r} does not apply")
        is_newest = self._confirm is not None and not request.resource_version
        watcher = self._hub.open(identity, resource, request, notify, is_held=is_newest)
        if is_newest:
            task = asyncio.create_task(self._begin_newest(watcher))
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)
        elif self._on_open is not None:
            self._on_open(watcher, request)
        if identity.credential != LASTING:
            self._expiring[watcher] = identity.credential
            if not self._is_checking:
                self._is_checking = True
                self._spawn(self._end_expired())
        return watcher

    async def _begin_newest(self, watcher: Watcher) -> None:
        """Begin a watch at the newest version, after this server has caught up with the others."""
        assert self._confirm is not None, "others write"
        try:
            await self._confirm()
            if watcher.end_reason:
                return  # its client has left meanwhile
            self._hub.release(watcher)
        except ApiError as error:
            self._hub.release(watcher, error)
        if self._on_open is not None:
            # Its first version is known only now; no event was taken from it yet.
            self._on_open(watcher, watcher.request)

    async def _end_expired(self) -> None:
        """End watches whose certificate or token has expired, or whose account, pod or secret is gone (X-TOK2)."""
        while True:
            await asyncio.sleep(EXPIRY_CHECK_S)
            for watcher, credential in list(self._expiring.items()):
                if watcher.end_reason:
                    del self._expiring[watcher]
                    continue
                try:
                    self._check(credential)
                except Unauthorized:
                    del self._expiring[watcher]
                    watcher.close(AUTH_EXPIRED)

    def cancel(self) -> None:
        """Cancel the start of the watches that wait to begin at the newest version."""
        for task in self._beginning:
            task.cancel()
