"""Requests to an API server over REST, in an event loop."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
from yarl import URL

from lab.exchange.rest.credentials import Credentials
from lab.exchange.rest.endpoint import JSON, NO_QUERY, Endpoint

CONNECT_MAX_S: Final = 30.0


class RestClient:
    """Client of one API server; `close` it. `timeout_s`: for a whole request, None for no limit."""

    def __init__(self, endpoint: Endpoint, timeout_s: float | None = None) -> None:
        self._endpoint, self._timeout_s = endpoint, timeout_s
        self.credentials = Credentials(endpoint.access, endpoint.trust, time.time)
        self._open_session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """End all connections."""
        if self._open_session is not None:
            await self._open_session.close()

    async def get(self, path: str, query: Mapping[str, object] = NO_QUERY, accept: str = JSON) -> Any:
        """Return the JSON at a path. Raises: ApiError, Refused."""
        async with self.answer("GET", path, query, accept) as answer:
            return self._endpoint.document(path, await answer.read())

    async def change(
        self, method: str, path: str, query: Mapping[str, object], body: bytes, content_type: str = JSON
    ) -> Any:
        """Return the answer to a change. Raises: ApiError, Refused."""
        async with self.answer(method, path, query, body=body, content_type=content_type) as answer:
            return self._endpoint.document(path, await answer.read())

    @asynccontextmanager
    async def answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] = NO_QUERY,
        accept: str = JSON,
        *,
        body: bytes | None = None,
        content_type: str = "",
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield the open answer to a request; after a refused token the request is sent once more with a new token.

        Raises: ApiError; NoAnswer, also when the answer breaks off; Refused, if there are no credentials.
        """
        endpoint = self._endpoint
        try:
            for is_last in (False, True):
                token = await self.credentials.token()
                request = self._session().request(
                    method,
                    URL(endpoint.url(path, query), encoded=True),
                    headers=endpoint.headers(token, accept, content_type),
                    data=body,
                    allow_redirects=method == "GET",
                    server_hostname=endpoint.access.server_name or None,
                    proxy=endpoint.access.proxy or None,
                )
                async with request as answer:
                    if answer.status == 401 and not is_last and await self.credentials.renew(token):
                        continue
                    if answer.status >= 400:
                        retry_after = answer.headers.get("Retry-After")
                        raise endpoint.refusal(answer.status, await answer.read(), retry_after)
                    yield answer
                    return
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise endpoint.no_answer(error) from None

    def _session(self) -> aiohttp.ClientSession:
        if self._open_session is None:
            trust = self._endpoint.trust
            self._open_session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=trust if trust is not None else True),
                timeout=aiohttp.ClientTimeout(self._timeout_s, connect=CONNECT_MAX_S, sock_connect=CONNECT_MAX_S),
                read_bufsize=1 << 20,
                max_line_size=1 << 16,
            )
        return self._open_session
