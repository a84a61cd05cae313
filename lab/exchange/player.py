"""Play changes over time: each is made at its moment after the beginning, as a client makes it.

A patch is sent in its parts: metadata and spec, status, and the binding of a pod, because an API server takes
each at its own endpoint. Under the rules `pending` the mesh decides what its components did in the recording.
Source: simulator 5.2.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from lab.exchange.load import Loaded, Loader, ResourceOf
from lab.exchange.machines import MachinePower, Machines
from lab.exchange.rules import (
    NODES,
    PODS,
    Counted,
    Rules,
    is_controlled,
    left_to_components,
    missing_owners,
    owners_of,
    parts,
)
from lab.exchange.stream import Change, Refused
from services.api.errors import ApiError, NotFound
from services.api.meta import Document, Key, Resource, key_of, metadata_of
from services.api.resources import resources
from services.api.seams import Clock
from services.client.client import Client

AT_ONCE: Final = 64
AS_FAST_AS_POSSIBLE: Final = math.inf
LATE_S: Final = 0.001
"""Delay in seconds above which a change counts as late."""


@dataclass
class Played:
    """Result of playing changes. `left_out`: counts by reason; `failures`: one line for each refused change; `late_s`:
    largest lateness of a change in seconds; `last_s`: the time of the last change, in seconds of the recording.
    """

    applied: int = 0
    left_out: Counted = field(default_factory=Counted)
    failures: list[str] = field(default_factory=list)
    late: int = 0
    late_s: float = 0.0
    last_s: float = 0.0


class Player:
    """Player of changes on an API server.

    `speed`: how many seconds of the recording pass in one of the clock, `AS_FAST_AS_POSSIBLE` for no pauses.
    `loaded`: the result of loading the snapshot, with its uids and objects. `is_lenient`: a change that cannot be
    made is counted instead of ending the play. `resources_of`: kinds that are not built in, by wire name. `binder`:
    the client that may bind pods, if it is another. `power`: switches the machines of nodes; without it Nodes are
    objects like others.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        rules: Rules | None = None,
        *,
        speed: float = 1.0,
        loaded: Loaded | None = None,
        is_lenient: bool = False,
        resources_of: dict[str, Resource] | None = None,
        binder: Client | None = None,
        power: MachinePower | None = None,
    ) -> None:
        if not speed > 0:
            raise ValueError(f"speed {speed:g}: want more than 0")
        self._client, self._clock, self._rules, self._speed = client, clock, rules or Rules(), speed
        self._resources = {**resources(), **(resources_of or {})}
        by_kind = {(each.api_version, each.kind): each for each in self._resources.values()}
        resource_of: ResourceOf = lambda version, kind: by_kind.get((version, kind))  # noqa: E731 (a line says it)
        self._loader = Loader(client, self._rules, resource_of=resource_of)
        if loaded is not None:
            self._loader.loaded.uids, self._loader.loaded.known = loaded.uids, loaded.known
        self._is_lenient, self._binder = is_lenient, binder or client
        self._controlled: set[tuple[str, Key]] = set()
        self._machines = (
            Machines(power, delete=partial(self._loader.delete, NODES), change=self._change_node) if power else None
        )
        self.played = Played()

    def remember(self, resource: str, document: Document) -> None:
        """Remember an object of the snapshot, and whether a controller made it."""
        key = key_of(document)
        self._loader.loaded.known.add((resource, key))
        if uid := str(metadata_of(document).get("uid") or ""):
            self._loader.loaded.uids.setdefault(uid, uid)
        if is_controlled(document):
            self._controlled.add((resource, key))

    async def play(self, changes: Iterable[Change], *, began_s: float | None = None) -> Played:
        """Make all changes at their moments, counted from `began_s` of the clock, or from now if it is not given.

        Raises: Refused, if a change cannot be made or the stream cannot be read on; UnknownOutcome, if no answer
        comes.
        """
        began = self._clock.now() if began_s is None else began_s
        try:
            return await self._play(changes, began)
        except ApiError as error:
            raise Refused(f"a machine of the recording: {error.message}") from None
        finally:
            if self._machines is not None:
                await self._machines.cancel()

    async def _play(self, changes: Iterable[Change], began: float) -> Played:
        for batch in _batches(changes, is_timed=self._speed != AS_FAST_AS_POSSIBLE):
            due = began + batch[0].at_s / self._speed
            if (wait_s := due - self._clock.now()) > 0 and self._speed != AS_FAST_AS_POSSIBLE:
                await asyncio.sleep(wait_s)
            elif -wait_s > LATE_S and self._speed != AS_FAST_AS_POSSIBLE:
                self.played.late += len(batch)
                self.played.late_s = max(self.played.late_s, -wait_s)
            await asyncio.gather(*map(self._one, batch))
            self.played.last_s = batch[-1].at_s
        if self._machines is not None:
            await self._machines.wait_for_all()
        return self.played

    async def _one(self, change: Change) -> None:
        if why := left_to_components(change, self._controlled, self._rules):
            self.played.left_out.add(why, f"{change.resource} {change.key}")
            self._follow(change)
            return
        if self._machines is not None and change.resource == NODES and self._machines.take(change):
            self._follow(change)
            self.played.applied += 1
            return
        resource = self._resources.get(change.resource)
        try:
            if resource is None:
                raise Refused(f"{change.where or change.resource}: {change}: the mesh serves no {change.resource}")
            try:
                why = await self._make(change, resource)
            except ApiError as error:
                raise Refused(f"{change.where or change.resource}: {change}: {error.message}") from None
        except Refused as error:
            if not self._is_lenient:
                raise
            self.played.failures.append(str(error))
            return
        self._follow(change)
        if why:
            self.played.left_out.add(why, f"{change.resource} {change.key}")
        else:
            self.played.applied += 1

    async def _change_node(self, change: Change) -> None:
        await self._change(change, self._resources[NODES])

    def _follow(self, change: Change) -> None:
        at = (change.resource, change.key)
        if change.method == "delete":
            self._controlled.discard(at)
        elif change.method in ("create", "update"):
            self._loader.loaded.known.add(at)
            if is_controlled(change.document or {}):
                self._controlled.add(at)

    async def _make(self, change: Change, resource: Resource) -> str:
        """Make a change; return why it was left out, "" if it was made. Raises: ApiError, Refused."""
        if change.method == "delete":
            is_there = await self._loader.delete(change.resource, change.key, at_once=self._rules.pods != "pending")
            return "" if is_there else "gone already"
        document = change.document or {}
        if change.method == "create" or (change.method == "update" and not owners_of(document)):
            return await self._create(change, resource, document)
        return await self._change(change, resource)

    async def _create(self, change: Change, resource: Resource, document: Document) -> str:
        uids = self._loader.loaded.uids
        if self._rules.keep_owners and missing_owners(document, uids):
            owners = ", ".join(f"{each.get('kind')} {each.get('name')}" for each in missing_owners(document, uids))
            return f"without owner ({owners})"
        uid = await self._loader.put(resource, document)
        if old := str(metadata_of(document).get("uid") or ""):
            uids[old] = uid
        return ""

    async def _change(self, change: Change, resource: Resource) -> str:
        body, status, node, is_deletion, size = parts(change, self._rules)
        if not (body or status or node or is_deletion or size):
            return "decided by the mesh"
        try:
            if body:
                await self._send(change, resource, body)
            if size:
                await self._send(change, resource, size, subresource="resize")
            if node:
                await self._bind(change.key, node)
            if status and "status" in resource.subresources:
                await self._send(change, resource, {"status": status}, subresource="status")
            if is_deletion:
                await self._loader.delete(change.resource, change.key)
        except NotFound:
            if (change.resource, change.key) not in self._loader.loaded.known:
                what = f"{resource.kind} {change.key} is not there"
                raise Refused(f"{change.where or change.resource}: {change}: {what}") from None
            return "gone already"
        return ""

    async def _send(self, change: Change, resource: Resource, body: Document, *, subresource: str = "") -> None:
        if change.method == "update":
            there = await self._client.get(resource.name, change.key)
            whole = {**there, **body, "metadata": {**there["metadata"], **metadata_of(body)}}
            await self._client.update(resource.name, change.key, whole, subresource=subresource)
            return
        await self._client.patch(
            resource.name, change.key, body, patch_type=change.patch_type or "merge", subresource=subresource
        )

    async def _bind(self, key: Key, node: str) -> None:
        pod = await self._client.get(PODS, key)
        if not pod["spec"].get("nodeName"):
            await self._binder.bind(key, pod["metadata"]["uid"], node)


def _batches(changes: Iterable[Change], *, is_timed: bool) -> Iterator[list[Change]]:
    """Yield changes of one kind together that are about different objects, and of one moment where times count."""
    batch: list[Change] = []
    about: set[tuple[str, Key]] = set()
    for change in changes:
        at = (change.resource, change.key)
        is_apart = bool(batch) and ((is_timed and change.at_s != batch[0].at_s) or at in about or len(batch) >= AT_ONCE)
        if is_apart or (batch and change.resource != batch[0].resource):
            yield batch
            batch, about = [], set()
        batch.append(change)
        about.add(at)
    if batch:
        yield batch
