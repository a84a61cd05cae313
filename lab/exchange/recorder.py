"""Record a cluster as it changes: its objects once, then every change with its time.

Each kind is listed, then watched from the version of its list, so nothing between is lost; a watch that ends is
resumed where it was, and if its version has expired the kind is listed anew. Source: simulator 5.2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from lab.exchange.cluster import Cluster, Expired
from lab.exchange.format import Writer
from lab.exchange.stream import Change, Refused
from services.api.errors import ApiError
from services.api.meta import Document, Key, Resource, key_of, metadata_of
from services.api.seams import Clock

AGAIN_S: Final = 1.0
"""Seconds between a watch that broke and the next attempt."""
BROKEN_MAX: Final = 30
"""Number of consecutive broken watches after which the recording ends."""
LEFT_OUT: Final = frozenset(("leases.coordination.k8s.io", "events", "events.events.k8s.io"))


class Recorder:
    """One recording. `began_s`: the clock's time from which times are counted. `has_secrets`: whether the data of
    Secrets are written; their names always are. `on_change`: called after each object and change.
    """

    def __init__(
        self,
        cluster: Cluster,
        writer: Writer,
        clock: Clock,
        *,
        selector: str = "",
        has_secrets: bool = True,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._cluster, self._writer, self._clock = cluster, writer, clock
        self._selector, self._has_secrets, self._on_change = selector, has_secrets, on_change
        self._began_s = clock.now()
        self._known: dict[str, dict[Key, str]] = {}
        self.objects = self.changes = 0
        self.failures: list[str] = []

    async def snapshot(self, kinds: Sequence[Resource]) -> list[tuple[Resource, str]]:
        """Write all objects of these kinds; return the version from which to watch each kind.

        A kind that may not be read, or is not served, is a failure and left out. Raises: Refused.
        """
        versions: dict[str, str] = {}
        for kind in kinds:
            known = self._known.setdefault(kind.name, {})
            try:
                async for items, version in self._cluster.list(kind, selector=self._selector):
                    versions[kind.name] = version
                    for item in items:
                        known[key_of(item)] = _version(item)
                        self._writer.put(self._without_secrets(item))
                        self.objects += 1
                        self._on_change()
            except ApiError as error:
                if error.code not in (403, 404, 405):
                    raise Refused(f"{kind.name}: {error.message}") from None
                self.failures.append(f"{kind.name}: {error.message}")
        return [(kind, versions[kind.name]) for kind in kinds if kind.name in versions]

    async def follow(self, versions: Sequence[tuple[Resource, str]]) -> None:
        """Write every change after these versions until cancelled. Raises: Refused, if the cluster stays away."""
        try:
            async with asyncio.TaskGroup() as group:
                for kind, version in versions:
                    group.create_task(self._follow(kind, version))
        except* Refused as errors:
            raise Refused(str(errors.exceptions[0])) from None

    async def _follow(self, kind: Resource, version: str | None) -> None:
        """Write changes for ever; `version` None: list the kind anew first. Raises: Refused."""
        broken = 0
        while True:
            try:
                if version is None:
                    version = await self._relist(kind)
                async for event in self._cluster.watch(kind, version, selector=self._selector):
                    version, broken = _version(event.document) or version, 0
                    if event.type != "BOOKMARK":
                        self._take(kind, event.document, is_gone=event.type == "DELETED")
            except Expired:
                version = None
            except (ApiError, Refused) as error:
                broken += 1
                if broken > BROKEN_MAX:
                    raise Refused(f"{kind.name}: {getattr(error, 'message', None) or error}") from None
                await asyncio.sleep(AGAIN_S)

    async def _relist(self, kind: Resource) -> str:
        """List a kind anew, and write how it differs from what is known of it; return the version of the list."""
        keys: set[Key] = set()
        version = ""
        async for items, version in self._cluster.list(kind, selector=self._selector):  # noqa: B007 (the last counts)
            for item in items:
                keys.add(key_of(item))
                if self._known[kind.name].get(key_of(item)) != _version(item):
                    self._take(kind, item, is_gone=False)
        for key in [key for key in self._known[kind.name] if key not in keys]:
            gone: Document = {"metadata": {"name": key.name, **({"namespace": key.namespace} if key.namespace else {})}}
            self._take(kind, gone, is_gone=True)
        return version

    def _take(self, kind: Resource, document: Document, *, is_gone: bool) -> None:
        key, known = key_of(document), self._known[kind.name]
        at_s = self._clock.now() - self._began_s
        if is_gone:
            known.pop(key, None)
            self._writer.change(Change(at_s, "delete", kind.name, key.namespace, key.name))
        else:
            document = {"apiVersion": kind.api_version, "kind": kind.kind, **self._without_secrets(document)}
            method = "update" if key in known else "create"
            known[key] = _version(document)
            self._writer.change(
                Change(at_s, "update" if method == "update" else "create", kind.name, key.namespace, key.name, document)
            )
        self.changes += 1
        self._on_change()

    def _without_secrets(self, document: Document) -> Document:
        return document if self._has_secrets else without_values(document)


def without_values(document: Document) -> Document:
    """Return a Secret without its values, also those in the annotation of `kubectl apply`; other objects unchanged."""
    if document.get("kind") != "Secret":
        return document
    empty = {name: dict.fromkeys(document[name], "") for name in ("data", "stringData") if document.get(name)}
    metadata = metadata_of(document)
    notes = {
        k: v for k, v in (metadata.get("annotations") or {}).items() if not k.endswith("last-applied-configuration")
    }
    kept = {**metadata, **({"annotations": notes} if "annotations" in metadata else {})}
    return {**document, **empty, "metadata": kept}


def _version(document: Document) -> str:
    return str(metadata_of(document).get("resourceVersion") or "")
