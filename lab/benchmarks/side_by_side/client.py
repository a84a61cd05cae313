"""Client of one control plane over REST and TLS. The same code talks to every plane that is measured."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import msgspec
from yarl import URL

from lab.benchmarks.rest import CREATORS
from lab.benchmarks.running_mesh import many
from lab.exchange.rest.credentials import Credentials
from lab.exchange.rest.endpoint import JSON, NO_QUERY, Endpoint, NoAnswer
from lab.exchange.rest.kubeconfig import Access

AGENT: Final = "keplab-bench"
CALL_MAX_S: Final = 120.0
CONNECT_MAX_S: Final = 20.0
IDLE_MAX_S: Final = 300.0
"""Seconds for which an idle connection is kept, so that a phase does not begin with handshakes."""
NAMES: Final = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
LINE_MAX: Final = 4 << 20


class PlaneClient:
    """Client of one plane with at most 32 connections, and one more for each watch; use it in an `async with`."""

    def __init__(self, access: Access) -> None:
        """Raises: Refused, if a certificate cannot be used."""
        self.server = access.server
        self._access, self._endpoint = access, Endpoint(access, agent=AGENT)
        self._credentials = Credentials(access, self._endpoint.trust, time.time)
        self._headers: dict[str, str] = {}
        self._sessions: list[aiohttp.ClientSession] = []

    async def __aenter__(self) -> "PlaneClient":
        """Get the credentials. Raises: Refused, if a program prints none."""
        self._headers = self._endpoint.headers(await self._credentials.token())
        self._sessions = [self._session(CREATORS, CALL_MAX_S), self._session(0, None)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for session in self._sessions:
            await session.close()

    def _session(self, connections: int, call_max_s: float | None) -> aiohttp.ClientSession:
        trust = self._endpoint.trust
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=trust if trust is not None else True, limit=connections, keepalive_timeout=IDLE_MAX_S
            ),
            timeout=aiohttp.ClientTimeout(call_max_s, connect=None, sock_connect=CONNECT_MAX_S),
            auto_decompress=False,
            read_bufsize=1 << 20,
        )

    async def warm_up(self) -> None:
        """Open all connections, and renew a token that expires. Raises: ApiError, Refused."""
        self._headers = self._endpoint.headers(await self._credentials.token())

        async def call(_: int) -> None:
            await self.call("GET", "/version")

        await many(range(2 * CREATORS), call, CREATORS)

    async def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        query: Mapping[str, object] = NO_QUERY,
        content_type: str = JSON,
        accept: str = JSON,
        encoding: str = "identity",
    ) -> bytes:
        """Make a request and return the body of the answer as it came. Raises: ApiError, also when none came."""
        headers = {**self._headers, "Accept": accept, "Accept-Encoding": encoding}
        if body is not None:
            headers["Content-Type"] = content_type
        try:
            async with self._request(self._sessions[0], method, path, query, headers, body) as answer:
                content: bytes = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._endpoint.no_answer(error) from None
        if answer.status >= 400:
            raise self._endpoint.refusal(answer.status, content, answer.headers.get("Retry-After"))
        return content

    async def document(self, method: str, path: str, body: object = None, **query: object) -> Any:
        """Make a request with a JSON body, and return the JSON of the answer. Raises: ApiError."""
        content = None if body is None else msgspec.json.encode(body)
        return self._endpoint.document(path, await self.call(method, path, content, query=query))

    async def names(self, path: str, **query: object) -> list[str]:
        """Return the names of a collection's objects. Raises: ApiError."""
        answer = self._endpoint.document(path, await self.call("GET", path, query=query, accept=NAMES))
        return [str(item["metadata"]["name"]) for item in answer.get("items") or ()]

    async def version_of(self, path: str) -> str:
        """Return the resource version of a collection. Raises: ApiError."""
        listed = await self.document("GET", path, limit=1)
        return str(listed["metadata"]["resourceVersion"])

    @asynccontextmanager
    async def watch(self, path: str, version: str, **query: object) -> AsyncIterator[AsyncIterator[bytes]]:
        """Watch a collection after a version; yield the blocks of bytes that come. They end only with an error.

        Raises: ApiError; NoAnswer, when the watch ends.
        """
        wanted = {"watch": "true", "resourceVersion": version, **query}
        headers = {**self._headers, "Accept-Encoding": "identity"}
        try:
            answer = await self._request(self._sessions[1], "GET", path, wanted, headers)
        except (aiohttp.ClientError, OSError) as error:
            raise self._endpoint.no_answer(error) from None
        async with answer:
            if answer.status >= 400:
                raise self._endpoint.refusal(answer.status, await answer.read(), None)
            yield self._blocks(path, answer)

    async def _blocks(self, path: str, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        try:
            async for block in answer.content.iter_any():
                yield block
        except (aiohttp.ClientError, OSError) as error:
            raise self._endpoint.no_answer(error) from None
        raise NoAnswer(f"{self.server}{path}: the server ended the watch")

    def _request(
        self,
        session: aiohttp.ClientSession,
        method: str,
        path: str,
        query: Mapping[str, object],
        headers: Mapping[str, str],
        body: bytes | None = None,
    ) -> Any:
        return session.request(
            method,
            URL(self._endpoint.url(path, query), encoded=True),
            data=body,
            headers=headers,
            allow_redirects=False,
            server_hostname=self._access.server_name or None,
            proxy=self._access.proxy or None,
        )


async def lines(blocks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of a watch. Raises: NoAnswer, also when a line is longer than 4 MiB."""
    rest = b""
    async for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            if line:
                yield line
        if len(rest) > LINE_MAX:
            raise NoAnswer("an event of a watch is longer than 4 MiB")
