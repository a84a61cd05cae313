"""A cluster over REST, looked at: kinds, lists in pages, watches. Nothing is written, one request at a time a kind.

Source: simulator 4.2, 5.2.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Final, NamedTuple

import aiohttp
import msgspec

from lab.exchange.credentials import Credentials, show_certificate
from lab.exchange.kubeconfig import Access
from lab.exchange.stream import Refused
from services.api.errors import UNREADABLE, from_status
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
"""What is looked at unless kinds are said (simulator 5.2)."""


class Event(NamedTuple):
    """One line of a watch. `type`: ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    document: Document


class Expired(Exception):
    """The version from which a watch was wanted is forgotten: list anew."""


class Cluster:
    """Use it in an `async with`."""

    def __init__(self, access: Access, *, as_user: str = "") -> None:
        self._access, self._as_user = access, as_user
        self._session: aiohttp.ClientSession | None = None
        self._credentials: Credentials | None = None

    async def __aenter__(self) -> Cluster:
        """Open connections. Raises: Refused: a certificate cannot be read, a program prints no credentials."""
        headers = {"Accept": "application/json"}
        trust = _trust(self._access)
        self._credentials = Credentials(self._access, trust, time.time)
        await self._credentials.token()
        if self._as_user:
            headers["Impersonate-User"] = self._as_user
        timeout = aiohttp.ClientTimeout(total=None, connect=WAIT_MAX_S, sock_connect=WAIT_MAX_S)
        connector = aiohttp.TCPConnector(ssl=trust if trust is not None else True)
        self._session = aiohttp.ClientSession(
            headers=headers, connector=connector, timeout=timeout, read_bufsize=1 << 20, max_line_size=1 << 16
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def kinds(self, names: Sequence[str] = ()) -> list[Resource]:
        """Return the kinds of these names, `DEFAULT_KINDS` if there are none. Raises: Refused: one is unknown."""
        found: list[Resource] = []
        others: list[Resource] | None = None
        for name in names or DEFAULT_KINDS:
            known = next((each for each in resources().values() if _is_called(each, name)), None)
            if known is None:
                others = others if others is not None else await self._served()
                known = next((each for each in others if _is_called(each, name)), None)
            if known is None:
                raise Refused(f"{self._access.server}: no kind {name!r}; `kubectl api-resources` lists them")
            if known not in found:
                found.append(known)
        return found

    async def _served(self) -> list[Resource]:
        groups = (await self.get("/apis")).get("groups") or ()
        places = [("", "v1", "/api/v1")]
        for group in groups:
            version = group["preferredVersion"]["version"]
            places.append((group["name"], version, f"/apis/{group['name']}/{version}"))
        found: list[Resource] = []
        for group, version, path in places:
            for each in (await self.get(path)).get("resources") or ():
                if "/" not in each["name"] and "list" in each.get("verbs", ()):
                    found.append(
                        Resource(
                            group=group,
                            version=version,
                            kind=each["kind"],
                            plural=each["name"],
                            namespaced=bool(each.get("namespaced")),
                            short_names=tuple(each.get("shortNames") or ()),
                            singular=each.get("singularName") or "",
                        )
                    )
        return found

    async def get(self, path: str, **query: str) -> Document:
        """Return the JSON there. Raises: ApiError, Refused: the server does not answer; waits out 429 as asked."""
        while True:
            try:
                async with self._asked(path, query) as answer:
                    body = await answer.read()
                    if answer.status == 429 and (seconds := answer.headers.get("Retry-After", "1")).isdigit():
                        await asyncio.sleep(min(WAIT_MAX_S, float(seconds)))
                        continue
                    if answer.status >= 400:
                        raise from_status(answer.status, body)
                    found = msgspec.json.decode(body)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise Refused(f"{self._access.server}: it does not answer: {error or type(error).__name__}") from None
            except UNREADABLE as error:
                raise Refused(f"{self._access.server}{path}: its answer is no JSON: {error}") from None
            if not isinstance(found, dict):
                raise Refused(f"{self._access.server}{path}: its answer is no object")
            return found

    @asynccontextmanager
    async def _asked(self, path: str, query: dict[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """Ask; once more with another token where there is one and the first was refused. Raises: Refused."""
        assert self._session is not None, "used outside of its block"
        assert self._credentials is not None
        for is_last in (False, True):
            token = await self._credentials.token()
            request = self._session.get(
                f"{self._access.server}{path}",
                params=query,
                headers={"Authorization": f"Bearer {token}"} if token else {},
                server_hostname=self._access.server_name or None,
                proxy=self._access.proxy or None,
            )
            async with request as answer:
                if is_last or answer.status != 401 or not await self._credentials.renew(token):
                    yield answer
                    return

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
        """Yield what becomes of a kind after a version, until the server ends it.

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
            async with self._asked(path_of(kind), query) as answer:
                if answer.status >= 400:
                    refused = from_status(answer.status, await answer.read())
                    raise Expired(refused.message) if refused.code == 410 else refused
                rest = b""
                async for block in answer.content.iter_any():
                    *lines, rest = (rest + block).split(b"\n")
                    for line in lines:
                        if line.strip():
                            yield _event(line)
                    if len(rest) > LINE_MAX:
                        raise Refused(f"{self._access.server}: an event of {kind.name} is longer than 4 MiB")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Refused(f"{self._access.server}: the watch broke: {error}") from None


def path_of(kind: Resource) -> str:
    """Return the path of a kind's objects in all namespaces."""
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return f"{root}/{kind.plural}"


def _event(line: bytes) -> Event:
    try:
        found = msgspec.json.decode(line)
        kind, document = str(found["type"]), found["object"]
    except (*UNREADABLE, LookupError, TypeError) as error:
        raise Refused(f"a watch said what is no event: {error}") from None
    if kind == "ERROR":
        code = int(document.get("code") or 500)
        refused = from_status(code, msgspec.json.encode(document))
        raise Expired(refused.message) if code == 410 else refused
    return Event(kind, document)


def _is_called(kind: Resource, name: str) -> bool:
    plain, _, group = name.lower().partition(".")
    names = (kind.plural, kind.singular, kind.kind.lower(), *kind.short_names)
    return plain in names and (not group or kind.group == group or kind.group.startswith(f"{group}."))


def _trust(access: Access) -> ssl.SSLContext | None:
    """Return what is trusted and shown, None where nothing is encrypted. Raises: Refused."""
    if not access.server.startswith("https://"):
        return None
    try:
        context = ssl.create_default_context(cadata=access.authority or None)
        if access.is_insecure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    except (ssl.SSLError, OSError, ValueError) as error:
        raise Refused(f"{access.server}: the kubeconfig's certificates cannot be used: {error}") from None
    if access.certificate:
        show_certificate(context, access.certificate, access.key)
    return context
