"""Copy a cluster's changes into a mesh as they come; the mesh's own scheduler decides where pods go.

Objects are added, updated and deleted as in the cluster, but a pod that has a node there is not updated: the
mesh decides about it anew. The cluster is asked only for lists and watches, one kind in each. Source: simulator
4.2; kubernetes-sigs/kube-scheduler-simulator, `simulator/syncer/syncer.go`,
`simulator/resourceapplier/resource.go`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import structlog

from lab.exchange.edits import Edits
from lab.exchange.load import Loader
from lab.exchange.rules import CLAIMS, PODS, VOLUMES, Counted, Rules, is_controlled, owners_of, relink_uids
from lab.exchange.stream import Refused
from services.api.errors import ApiError, NotFound, UnknownOutcome
from services.api.meta import Document, Key, Resource, key_of, metadata_of
from services.client.client import Client

KINDS: Final = (
    "namespaces",
    "priorityclasses.scheduling.k8s.io",
    "storageclasses.storage.k8s.io",
    CLAIMS,
    "nodes",
    VOLUMES,
    PODS,
)
"""Kinds in the order in which they are copied."""
OWNERS: Final = (
    "deployments.apps",
    "replicasets.apps",
    "statefulsets.apps",
    "daemonsets.apps",
    "cronjobs.batch",
    "jobs.batch",
)
"""Kinds that `keep_owners` copies before the pods."""
NEVER: Final = frozenset(("leases.coordination.k8s.io", "events", "events.events.k8s.io"))
AGAIN_S: Final = 1.0
_GIVEN: Final = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
log = structlog.get_logger()


class WatchEvent(Protocol):
    """One line of a watch."""

    @property
    def type(self) -> str: ...  # noqa: D102
    @property
    def document(self) -> Document: ...  # noqa: D102


class Watched(Protocol):
    """The cluster that is read."""

    async def kinds(self, names: Sequence[str] = ()) -> list[Resource]: ...  # noqa: D102
    def list(  # noqa: D102
        self, kind: Resource, *, selector: str = ""
    ) -> AsyncIterator[tuple[list[Document], str]]: ...
    def watch(self, kind: Resource, version: str, *, selector: str = "") -> AsyncIterator[Any]: ...  # noqa: D102


class VersionForgotten(Exception):
    """The requested start version of a watch is no longer available: list anew."""


@dataclass
class Synced:
    """Result of the copying. `left_out`: counts by reason; `failures`: one line for each refused object."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    left_out: Counted = field(default_factory=Counted)
    failures: list[str] = field(default_factory=list)


class Sync:
    """Copier of one cluster into one mesh.

    `is_wanted`: filter of objects. `forgotten`: the exception that the cluster's watch raises if its version is too
    old.
    """

    def __init__(
        self,
        cluster: Watched,
        client: Client,
        rules: Rules,
        *,
        edits: Edits | None = None,
        selector: str = "",
        is_wanted: Callable[[Document], bool] = lambda document: True,
        forgotten: type[Exception] = VersionForgotten,
        notify: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._cluster, self._client, self._rules = cluster, client, rules
        self._edits, self._selector, self._is_wanted = edits or Edits(), selector, is_wanted
        self._forgotten, self._notify = forgotten, notify
        self._loader = Loader(client, rules)
        self._known: dict[str, dict[Key, Document]] = {}
        self.synced = Synced()

    async def run(self, kinds: Sequence[Resource]) -> None:
        """Copy the existing objects, kind by kind, then follow all kinds until cancelled. Raises: Refused, ApiError."""
        versions = {kind.name: await self.copy(kind) for kind in kinds}
        self._notify(f"{self.synced.created} created, {self.synced.updated} updated; following changes")
        async with asyncio.TaskGroup() as group:
            for kind in kinds:
                group.create_task(self._follow(kind, versions[kind.name]))

    async def copy(self, kind: Resource) -> str:
        """Copy all objects of a kind, delete those gone since the last copy, and return the version to watch from."""
        version, seen = "", set()
        async for page, at in self._cluster.list(kind, selector=self._selector):
            version = version or at
            for document in page:
                seen.add(key_of(document))
                await self._put(kind, document)
        for key in [key for key in self._known.get(kind.name, {}) if key not in seen]:
            await self._on_deleted(kind, key)
        return version

    async def count(self, kinds: Sequence[Resource]) -> dict[str, int]:
        """Return how many objects of each kind would be copied at first."""
        counts: dict[str, int] = {}
        for kind in kinds:
            async for page, _ in self._cluster.list(kind, selector=self._selector):
                wanted = sum(self._prepare_object(kind, each) is not None for each in page)
                counts[kind.name] = counts.get(kind.name, 0) + wanted
        return counts

    async def _follow(self, kind: Resource, version: str | None) -> None:
        """Copy changes for ever; `version` None: copy the kind anew first. What keeps it from that is said once."""
        last_problem = ""
        while True:
            try:
                if version is None:
                    version = await self.copy(kind)
                async with aclosing(self._cluster.watch(kind, version, selector=self._selector)) as events:  # type: ignore[type-var]  # a generator
                    async for event in events:
                        version = str(metadata_of(event.document).get("resourceVersion") or version)
                        await self._change(kind, event)
                        last_problem = ""
                last_problem = ""
            except self._forgotten:
                version = None
            except (Refused, ApiError) as error:
                line = f"{kind.name}: {getattr(error, 'message', error)}; trying again"
                if line != last_problem:
                    self._notify(line)
                last_problem = line
                await asyncio.sleep(AGAIN_S)

    async def _change(self, kind: Resource, event: WatchEvent) -> None:
        document = {"apiVersion": kind.api_version, "kind": kind.kind, **event.document}
        if event.type == "DELETED":
            await self._on_deleted(kind, key_of(document))
        elif event.type in ("ADDED", "MODIFIED"):
            await self._put(kind, document)

    async def _put(self, kind: Resource, document: Document) -> None:
        key, known = key_of(document), self._known.setdefault(kind.name, {})
        new_document = self._prepare_object(kind, document)
        if new_document is None:
            return
        if key in known and kind.name == PODS and (document.get("spec") or {}).get("nodeName"):
            self.synced.left_out.add("updates of pods that have a node there", f"{kind.name} {key}")
            return
        bare = _bare(relink_uids(kind.name, new_document, self._loader.loaded.uids))
        try:
            if key in known:
                await self._update(kind, key, difference(known[key], bare))
            else:
                await self._create(kind, document, new_document)
        except NotFound:
            return  # it was deleted here
        except (ApiError, UnknownOutcome) as error:
            line = f"{kind.kind} {key}: {getattr(error, 'message', error)}"
            self.synced.failures.append(line)
            self._notify(line)
            return
        known[key] = bare

    async def _create(self, kind: Resource, document: Document, new_document: Document) -> None:
        before = self._loader.loaded.updated
        uid = await self._loader.put(kind, new_document)
        if old := str(metadata_of(document).get("uid") or ""):
            self._loader.loaded.uids[old] = uid
        if self._loader.loaded.updated > before:
            self.synced.updated += 1
        else:
            self.synced.created += 1

    async def _update(self, kind: Resource, key: Key, patch: Document) -> None:
        """Change what changed there, and nothing else that the mesh has made of the object since."""
        status = patch.pop("status", None)
        if kind.name == PODS and self._rules.pods == "pending":
            status = None
        if patch:
            await self._client.patch_rv(kind.name, key, patch)
        if status is not None and "status" in kind.subresources:
            await self._client.patch_rv(kind.name, key, {"status": status}, subresource="status")
        if patch or status is not None:
            self.synced.updated += 1

    async def _on_deleted(self, kind: Resource, key: Key) -> None:
        if self._known.get(kind.name, {}).pop(key, None) is None:
            return
        try:
            if await self._loader.delete(kind.name, key, at_once=kind.name == PODS):
                self.synced.deleted += 1
        except (ApiError, UnknownOutcome) as error:
            self._notify(f"{kind.kind} {key}: {getattr(error, 'message', error)}")

    def _prepare_object(self, kind: Resource, document: Document) -> Document | None:
        """Return what is made here of an object, None for nothing."""
        if not self._is_wanted(document) or _is_of_every_cluster(kind.name, document):
            return None
        if kind.name == PODS and self._rules.keep_owners and is_controlled(document):
            self.synced.left_out.add("pods that their owners make here", f"{kind.name} {key_of(document)}")
            return None
        new_document = self._edits.of(document)
        if new_document is None:
            self.synced.left_out.add("dropped by rule", f"{kind.name} {key_of(document)}")
            return None
        if kind.name == "secrets":
            new_document = {key: value for key, value in new_document.items() if key not in ("data", "stringData")}
        metadata = dict(metadata_of(new_document))
        if kind.name in OWNERS:  # their controllers here say how far they are
            new_document = {key: value for key, value in new_document.items() if key != "status"}
        if kind.name == PODS:
            metadata.pop("finalizers", None)
        if kind.name in OWNERS and not self._rules.keep_owners:
            metadata.pop("ownerReferences", None)
        elif kind.name != PODS and owners_of(new_document):
            known = self._loader.loaded.uids
            metadata["ownerReferences"] = [
                each for each in owners_of(new_document) if str(each.get("uid") or "") in known
            ]
        return {**new_document, "metadata": metadata}


def _is_of_every_cluster(resource: str, document: Document) -> bool:
    name = key_of(document).name
    if resource == "namespaces":
        return name == "default" or name.startswith("kube-")
    return resource == "priorityclasses.scheduling.k8s.io" and name.startswith("system-")


def _bare(document: Document) -> Document:
    """Return an object without what each API server gives itself."""
    metadata = {name: value for name, value in metadata_of(document).items() if name not in _GIVEN}
    return {**document, "metadata": metadata}


def difference(old: Document, new: Document) -> Document:
    """Return the merge patch (RFC 7396) that turns `old` into `new`."""
    patch: Document = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            if below := difference(before, value):
                patch[name] = below
        elif name not in old or before != value:
            patch[name] = value
    return patch
