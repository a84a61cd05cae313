"""One API server over HTTP, for any client: its addresses, certificates, and the meaning of its answers.

`RestClient` waits for answers in an event loop, `BlockingRestClient` without one.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from lab.exchange.rest.kubeconfig import Access
from lab.exchange.stream import Refused
from services.api.errors import UNREADABLE, ApiError, Unavailable, from_status

JSON: Final = "application/json"
NO_QUERY: Final[Mapping[str, object]] = {}


class NoAnswer(Unavailable):
    """No answer came, or it cannot be read."""


class Endpoint:
    """Address of an API server, and identity used there. `agent`: the User-Agent; `as_user`: the impersonated user."""

    def __init__(self, access: Access, *, agent: str = "keplab", as_user: str = "") -> None:
        """Raises: Refused, if a certificate cannot be used."""
        self.access = access
        self._headers = {"User-Agent": agent, **({"Impersonate-User": as_user} if as_user else {})}
        self.trust = _trust(access)

    def url(self, path: str, query: Mapping[str, object] = NO_QUERY) -> str:
        """Return the address of a path; empty values of the query are left out."""
        words = urlencode({name: value for name, value in query.items() if value not in ("", None)})
        return f"{self.access.server}{path}{'?' if words else ''}{words}"

    def headers(self, token: str, accept: str = JSON, content_type: str = "") -> dict[str, str]:
        """Return the headers of a request with this token, "" if there is no token."""
        return {
            **self._headers,
            "Accept": accept,
            **({"Content-Type": content_type} if content_type else {}),
            **({"Authorization": f"Bearer {token}"} if token else {}),
        }

    def document(self, path: str, body: bytes) -> Any:
        """Return the decoded JSON of an answer. Raises: NoAnswer."""
        try:
            return msgspec.json.decode(body)
        except UNREADABLE as error:
            raise NoAnswer(f"{self.access.server}{path}: its answer is no JSON: {error}") from None

    def refusal(self, status: int, body: bytes, retry_after: str | None) -> ApiError:
        """Return the error for an answer with an error status. `retry_after`: the header."""
        error = from_status(status, body)
        if retry_after is not None and retry_after.isdecimal():
            error.details.setdefault("retryAfterSeconds", int(retry_after))
        return error

    def no_answer(self, cause: object) -> NoAnswer:
        """Return the error for a request that was not answered."""
        why = str(cause) or type(cause).__name__
        return NoAnswer(f"the API server at {self.access.server} does not answer: {why}")


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


def show_certificate(trust: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load the client's certificate into a context, which takes it only from a file. Raises: Refused."""
    if not hasattr(os, "memfd_create"):
        raise Refused("client certificates need Linux; use a token")
    with os.fdopen(os.memfd_create("keplab-client"), "wb") as file:
        file.write(f"{certificate}\n{key}\n".encode())
        file.flush()
        try:
            trust.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
        except (ssl.SSLError, OSError) as error:
            raise Refused(f"the client's certificate cannot be used: {error}") from None
