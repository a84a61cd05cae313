"""Read a cluster over REST: kinds, lists in pages, watches.

Nothing is written. There is one request at a time for each kind.
Source: simulator 4.2, 5.2.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Final, NamedTuple

import msgspec

from lab.exchange.rest.client import RestClient
from lab.exchange.rest.endpoint import Endpoint, NoAnswer
from lab.exchange.rest.kubeconfig import Access
from lab.exchange.stream import Refused
from services.api.errors import UNREADABLE, ApiError, TooManyRequests, from_status
from services.api.meta import Document, Resource
from services.api.resources import resources

PAGE: Final = 500
WAIT_MAX_S: Final = 30.0
LINE_MAX: Final = 4 << 20
WATCH_ENDS_S: Final = 300
DEFAULT_KINDS: Final = (
    *("namespaces", "nodes", "serviceaccounts", "configmaps", "secrets", "limitranges"),
    *("runtimeclasses.node.k8s.io", "priorityclasses.scheduling.k8s.io"),
    *("clusterroles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io"),
    *("roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io"),
    *("daemonsets.apps", "deployments.apps", "replicasets.apps", "statefulsets.apps", "cronjobs.batch", "jobs.batch"),
    *("persistentvolumeclaims", "persistentvolumes", "pods", "services", "endpoints"),
)
"""Kinds that are read unless the user names some (simulator 5.2)."""


class Event(NamedTuple):
    """One line of a watch. `type`: ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    document: Document


class Expired(Exception):
    """The requested start version of a watch is no longer available: list anew."""


class Cluster:
    """A cluster that is read over REST; use it in an `async with`."""

    def __init__(self, access: Access, *, as_user: str = "") -> None:
        """Raises: Refused, if a certificate cannot be used."""
        self._server = access.server
        self._rest = RestClient(Endpoint(access, as_user=as_user))

    async def __aenter__(self) -> Cluster:
        """Get the credentials. Raises: Refused, if a program prints none."""
        await self._rest.credentials.token()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._rest.close()

    async def kinds(self, names: Sequence[str] = ()) -> list[Resource]:
        """Return the kinds with these names, or `DEFAULT_KINDS` if no names are given.

        Raises: Refused, if a kind is unknown, or the server does not list its groups.
        """
        kinds: list[Resource] = []
        served: list[Resource] | None = None
        silent: list[str] = []
        for name in names or DEFAULT_KINDS:
            kind = next((known for known in resources().values() if _is_called(known, name)), None)
            if kind is None:
                if served is None:
                    served, silent = await self._served_kinds()
                kind = next((known for known in served if _is_called(known, name)), None)
            if kind is None:
                reason = f"; {', '.join(silent)} could not be listed" if silent else ""
                raise Refused(f"{self._server}: no kind {name!r}{reason}; `kubectl api-resources` lists them")
            if kind not in kinds:
                kinds.append(kind)
        return kinds

    async def _served_kinds(self) -> tuple[list[Resource], list[str]]:
        """Return the kinds that can be listed, and the groups that do not list theirs, each with the error.

        One group without an answer (an aggregated server that is down) leaves the others as they are, as with kubectl.
        """
        try:
            groups = (await self.get("/apis")).get("groups") or ()
        except ApiError as error:
            raise Refused(f"{self._server}: its API groups could not be listed: {error.message}") from None
        places = [("", "v1", "/api/v1")]
        for group in groups:
            version = group["preferredVersion"]["version"]
            places.append((group["name"], version, f"/apis/{group['name']}/{version}"))
        kinds: list[Resource] = []
        silent: list[str] = []
        for group, version, path in places:
            try:
                listed = (await self.get(path)).get("resources") or ()
            except ApiError as error:
                silent.append(f"{f'{group}/' if group else ''}{version} ({error.message})")
                continue
            for entry in listed:
                if "/" not in entry["name"] and "list" in entry.get("verbs", ()):
                    kinds.append(
                        Resource(
                            group=group,
                            version=version,
                            kind=entry["kind"],
                            plural=entry["name"],
                            namespaced=bool(entry.get("namespaced")),
                            short_names=tuple(entry.get("shortNames") or ()),
                            singular=entry.get("singularName") or "",
                        )
                    )
        return kinds, silent

    async def get(self, path: str, **query: str) -> Document:
        """Return the JSON at a path; on a 429 wait as the server asks and try again.

        Raises: ApiError; Refused, if the server does not answer.
        """
        while True:
            try:
                document = await self._rest.get(path, query)
            except TooManyRequests as error:
                await asyncio.sleep(min(WAIT_MAX_S, float(error.retry_after_s or 1)))
                continue
            except NoAnswer as error:
                raise Refused(error.message) from None
            if not isinstance(document, dict):
                raise Refused(f"{self._server}{path}: its answer is no object")
            return document

    async def list(self, kind: Resource, *, selector: str = "") -> AsyncIterator[tuple[list[Document], str]]:
        """Yield the objects of a kind in pages, each with the version of the list. Raises: ApiError, Refused."""
        more = ""
        query = {"limit": str(PAGE), **({"labelSelector": selector} if selector else {})}
        while True:
            page = await self.get(path_of(kind), **query, **({"continue": more} if more else {}))
            metadata = page.get("metadata") or {}
            items = [{"apiVersion": kind.api_version, "kind": kind.kind, **each} for each in page.get("items") or ()]
            yield items, str(metadata.get("resourceVersion") or "")
            more = str(metadata.get("continue") or "")
            if not more:
                return

    async def watch(self, kind: Resource, version: str, *, selector: str = "") -> AsyncIterator[Event]:
        """Yield the events of a kind after a version, until the server ends the watch.

        Raises: Expired, ApiError, Refused.
        """
        query = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_ENDS_S),
            **({"labelSelector": selector} if selector else {}),
        }
        try:
            async with self._rest.answer("GET", path_of(kind), query) as answer:
                rest = b""
                async for block in answer.content.iter_any():
                    *lines, rest = (rest + block).split(b"\n")
                    for line in lines:
                        if line.strip():
                            yield _event(line)
                    if len(rest) > LINE_MAX:
                        raise Refused(f"{self._server}: an event of {kind.name} is longer than 4 MiB")
        except NoAnswer as error:
            raise Refused(f"the watch of {kind.name} broke: {error.message}") from None
        except ApiError as error:
            raise Expired(error.message) if error.code == 410 else error from None


def path_of(kind: Resource) -> str:
    """Return the REST path of a kind's objects in all namespaces."""
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return f"{root}/{kind.plural}"


def _event(line: bytes) -> Event:
    try:
        message = msgspec.json.decode(line)
        kind, document = str(message["type"]), message["object"]
    except (*UNREADABLE, LookupError, TypeError) as error:
        raise Refused(f"a watch sent a line that is no event: {error}") from None
    if kind == "ERROR":
        raise from_status(int(document.get("code") or 500), msgspec.json.encode(document))
    return Event(kind, document)


def _is_called(kind: Resource, name: str) -> bool:
    plain, _, group = name.lower().partition(".")
    names = (kind.plural, kind.singular, kind.kind.lower(), *kind.short_names)
    return plain in names and (not group or kind.group == group or kind.group.startswith(f"{group}."))
