"""Read an API server over REST without an event loop, so that commands with one or two requests start sooner."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

from lab.exchange.rest.endpoint import JSON, NO_QUERY, Endpoint

TIMEOUT_S: Final = 30.0


class BlockingRestClient:
    """Client for reading one API server, one request at a time. `timeout_s`: how long the server may stay silent."""

    def __init__(self, endpoint: Endpoint, timeout_s: float = TIMEOUT_S) -> None:
        self._endpoint, self._timeout_s = endpoint, timeout_s
        proxy = endpoint.access.proxy
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({"http": proxy, "https": proxy} if proxy else {}),
            urllib.request.HTTPSHandler(context=endpoint.trust),
        )

    def get(self, path: str, query: Mapping[str, object] = NO_QUERY, accept: str = JSON) -> Any:
        """Return the JSON at a path. Raises: ApiError; NoAnswer; Refused, if there are no credentials."""
        return self._endpoint.document(path, self._read(self._endpoint.url(path, query), accept))

    def _read(self, url: str, accept: str) -> bytes:
        request = urllib.request.Request(url, headers=self._endpoint.headers(self._token(), accept))
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                body: bytes = answer.read()
                return body
        except urllib.error.HTTPError as error:
            raise self._endpoint.refusal(error.code, error.read(), error.headers.get("Retry-After")) from None
        except (OSError, http.client.HTTPException) as error:
            raise self._endpoint.no_answer(getattr(error, "reason", None) or error) from None

    def _token(self) -> str:
        access = self._endpoint.access
        if access.has_lasting_token:
            return access.token
        import asyncio

        from lab.exchange.rest.credentials import Credentials

        return asyncio.run(Credentials(access, self._endpoint.trust, time.time).token())
