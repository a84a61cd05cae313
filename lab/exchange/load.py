"""Load a snapshot into a running mesh; nothing is deleted.

Owners are loaded before their objects, whose references get the new uids. All objects are read and checked
before the first is sent. An object is created, or updated if it already exists; then its status is set. What
the API server refuses is reported, and the rest goes on.
Source: simulator 4.1, 5.2; kubernetes-sigs/kwok, `pkg/kwokctl/snapshot/load.go`.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from lab.exchange.rules import (
    NODES,
    PODS,
    Rules,
    handed_over,
    missing_owners,
    never_less,
    prepare_object,
    rank,
    relink_uids,
    without_began,
)
from lab.exchange.spool import Spool
from lab.exchange.stream import Placed
from services.api.errors import AlreadyExists, ApiError, Conflict, NotFound
from services.api.kinds.pod import Pod
from services.api.meta import Document, Key, Resource, key_of, metadata_of
from services.api.resources import resource_of_kind
from services.client.client import Client

_OF_BINDING: Final = ("observedGeneration", "bindingGeneration", "unbindCount", "unbindHistory")
_NETWORK: Final = ("podCIDR", "podCIDRs", "providerID")
_LEASES, _LEASES_OF_NODES = "leases.coordination.k8s.io", "kube-node-lease"
CONFLICTS_MAX: Final = 5
"""Largest number of attempts to update an object that others change meanwhile."""
AT_ONCE: Final = 64
"""Largest number of objects that are sent at the same time."""
ResourceOf = Callable[[str, str], Resource | None]
"""Function from an apiVersion and kind to the resource as the mesh serves it; None if it is not served."""
Progress = Callable[[int, int], None]
"""Function called with the number of objects done, and of all."""


@dataclass
class Loaded:
    """Result of loading a snapshot.

    `uids`: the new uid by the one in the snapshot; `known`: every object that was loaded. `orphans`: objects whose
    owners are not in the snapshot, by name, with those owners. `failures`: one line for each object that the API
    server refused. `unknown`: counts of objects of kinds that it does not serve.
    """

    created: int = 0
    updated: int = 0
    orphans: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)
    uids: dict[str, str] = field(default_factory=dict)
    known: set[tuple[str, Key]] = field(default_factory=set)


class Loader:
    """Loader of a snapshot with one client. `resource_of`: looks up kinds that are not built in."""

    def __init__(
        self,
        client: Client,
        rules: Rules | None = None,
        *,
        resource_of: ResourceOf = resource_of_kind,
        progress: Progress | None = None,
    ) -> None:
        self._client, self._rules, self._resource_of = client, rules or Rules(), resource_of
        self._progress = progress or (lambda _done, _all: None)
        self.loaded = Loaded()
        self._hosted: dict[str, bool] = {}

    async def load(self, objects: Iterable[Placed]) -> Loaded:
        """Load all objects and return the result.

        Raises: Refused, if an object cannot be read; then nothing was loaded. UnknownOutcome, if the API server does
        not answer.
        """
        with Spool() as spool:
            ready: list[tuple[int, int]] = []
            for entry in objects:
                resource = self._served_resource(entry)
                if resource is not None:
                    ready.append((rank(resource.name), spool.put(entry)))
            heapq.heapify(ready)
            await self._all(spool, ready)
        return self.loaded

    def _served_resource(self, placed: Placed) -> Resource | None:
        document = placed.document
        resource = self._resource_of(str(document.get("apiVersion")), str(document.get("kind")))
        if resource is None:
            kind = f"{document.get('apiVersion')} {document.get('kind')}"
            self.loaded.unknown[kind] = self.loaded.unknown.get(kind, 0) + 1
        return resource

    async def _all(self, spool: Spool, ready: list[tuple[int, int]]) -> None:
        """Load what is ready, lowest rank first; `waiting`: numbers of those that wait for an owner, by its uid."""
        waiting: dict[str, list[tuple[int, int]]] = {}
        done, total = 0, len(ready)
        while ready:
            batch: list[tuple[Placed, Resource]] = []
            first = ready[0][0]
            while ready and ready[0][0] == first and len(batch) < AT_ONCE:
                entry = heapq.heappop(ready)
                placed = spool.get(entry[1])
                missing = missing_owners(placed.document, self.loaded.uids) if self._rules.keep_owners else []
                if missing:
                    waiting.setdefault(str(missing[0].get("uid") or ""), []).append(entry)
                    continue
                resource = self._served_resource(placed)
                assert resource is not None, "it was served when it was read"
                batch.append((placed, resource))
            for uid in await asyncio.gather(*(self._one(placed, resource) for placed, resource in batch)):
                for entry in waiting.pop(uid, ()):
                    heapq.heappush(ready, entry)
            done += len(batch)
            self._progress(done, total)
        for _, number in sorted(entry for entries in waiting.values() for entry in entries):
            placed = spool.get(number)
            wanted = ", ".join(
                f"{each.get('kind')} {each.get('name')}" for each in missing_owners(placed.document, self.loaded.uids)
            )
            self.loaded.orphans.append(f"{placed.where}: {placed.name}: no owner {wanted}")

    async def _one(self, placed: Placed, resource: Resource) -> str:
        """Load an object and return the uid that it had; "" where the API server refused it."""
        old = str(metadata_of(placed.document).get("uid") or "")
        try:
            uid = await self.put(resource, placed.document)
        except ApiError as error:
            self.loaded.failures.append(f"{placed.where}: {placed.name}: {error.message}")
            return ""
        if old:
            self.loaded.uids[old] = uid
        return old

    async def put(self, resource: Resource, document: Document) -> str:
        """Create an object, or update the existing one, and return its uid. Raises: ApiError, UnknownOutcome."""
        parts = prepare_object(resource.name, document, self._rules)
        if self._rules.has_kubelets and resource.name == PODS:
            node = str(parts.document["spec"].get("nodeName") or "")
            parts = handed_over(parts) if node and await self._has_kubelet(node) else parts
        new_document, status, is_terminating = parts
        linked = relink_uids(
            resource.name, {**new_document, **({"status": status} if status else {})}, self.loaded.uids
        )
        status = linked.pop("status", None)
        key = key_of(linked)
        try:
            stored = await self._client.create(resource.name, linked)
            self.loaded.created += 1
        except AlreadyExists:
            if self._rules.keeps_existing:
                return str(metadata_of(await self._client.get(resource.name, key)).get("uid") or "")
            stored = await self._update(resource, key, linked)
            self.loaded.updated += 1
        self.loaded.known.add((resource.name, key))
        if status and "status" in resource.subresources:
            await self._give_status(resource, key, stored, status)
        if is_terminating:
            await self.delete(resource.name, key)
        return str(metadata_of(stored).get("uid") or "")

    async def _update(self, resource: Resource, key: Key, document: Document) -> Document:
        for left in reversed(range(CONFLICTS_MAX)):
            there = await self._client.get(resource.name, key)
            version = there["metadata"]["resourceVersion"]
            body = {**document, "metadata": {**document["metadata"], "resourceVersion": version}}
            if resource.name == PODS:
                # A binding is made once: a pod that is there stays where it is, and what its kubelet makes of it.
                body["metadata"] = without_began(body["metadata"])
                body["spec"] = {**document["spec"], "nodeName": there["spec"].get("nodeName")}
            elif resource.name == NODES:
                # A node's network is given once: to one that is there, here.
                held = {name: there["spec"][name] for name in _NETWORK if there.get("spec", {}).get(name)}
                body["spec"] = {**(document.get("spec") or {}), **held}
            try:
                return await self._client.update(resource.name, key, body)
            except Conflict:
                if not left:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _give_status(self, resource: Resource, key: Key, stored: Document, status: Document) -> None:
        if resource.view is Pod:
            # Which binding a status is about is the mesh's own count.
            status = {name: value for name, value in status.items() if name not in _OF_BINDING}
        elif self._rules.has_kubelets and isinstance(observed := status.get("observedGeneration"), int):
            # Generations are counted anew here, and what was observed of an object is none that it has not had.
            newest = int(metadata_of(stored).get("generation") or observed)
            status = {**status, "observedGeneration": min(observed, newest)}
        for left in reversed(range(CONFLICTS_MAX)):
            # On the version that was read: controllers may have written what may not be taken back.
            body = {**stored, "status": never_less(resource.name, status, stored)}
            try:
                await self._client.update(resource.name, key, body, subresource="status")
                return
            except Conflict:
                if not left:
                    raise
            stored = await self._client.get(resource.name, key)

    async def _has_kubelet(self, node: str) -> bool:
        """Whether a kubelet renews the lease of a node; of many pods of a node it is asked once."""
        if node not in self._hosted:
            try:
                lease = await self._client.get(_LEASES, Key(_LEASES_OF_NODES, node))
                self._hosted[node] = (lease.get("spec") or {}).get("holderIdentity") == node
            except NotFound:
                self._hosted[node] = False
        return self._hosted[node]

    async def delete(self, resource: str, key: Key, *, at_once: bool = False) -> bool:
        """Delete an object; return False if it was not there. Raises: ApiError, UnknownOutcome."""
        try:
            await self._client.delete(resource, key, grace_period_s=0 if at_once else None)
        except NotFound:
            return False
        return True
