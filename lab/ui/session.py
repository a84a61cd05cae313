"""Access to the page's server: one token, a cookie that it is traded for, and checks of a request's origin.

The token reaches the browser in a fragment of the address, which is neither sent nor logged; the page trades it
for a cookie that no script can read. A request that changes anything also carries a value that only the page
could read. The host name is checked as the other servers do (X-WEB): a page elsewhere can make its own name
resolve to us.
"""

import hmac
from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from services.api.errors import ApiError, Forbidden, Unauthorized
from services.runtime.web import LOOPBACK_NAMES, host_name

COOKIE: Final = "keplab-ui"
CSRF_HEADER: Final = "X-Keplab-CSRF"
READING: Final = frozenset(("GET", "HEAD"))
TOKEN_BYTES_MIN: Final = 32
_FOLDED_LENGTH: Final = 64


class SessionRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Body of `POST /session`."""

    token: str


class MisdirectedHost(ApiError, code=421, reason="MisdirectedRequest"):
    """421: the host name is not one of the server's."""


class Sessions:
    """The only session of a server. `token`: opens the page; `cookie`, `csrf`: the values it is traded for, each drawn
    by the caller. `hosts`: further host names of the server.
    """

    def __init__(self, token: str, cookie: str, csrf: str, hosts: Collection[str] = ()) -> None:
        if len(token) < TOKEN_BYTES_MIN:
            raise ValueError(f"the token has {len(token)} characters; want at least {TOKEN_BYTES_MIN}")
        self.token, self.csrf, self._cookie = token, csrf, cookie
        self._hosts = frozenset((*LOOPBACK_NAMES, *(host.lower() for host in hosts)))

    def trade(self, body: bytes) -> str:
        """Return the cookie's value in exchange for a body with the token. Raises: Unauthorized."""
        try:
            given = msgspec.json.decode(body, type=SessionRequest).token
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            raise Unauthorized('want a body of {"token": …}') from None
        if not _is_same(given, self.token):
            raise Unauthorized("that is not the token that this server printed when it started")
        return self._cookie

    def check_host(self, host: str) -> None:
        """Check that a host name is one of the server's. Raises: MisdirectedHost."""
        if not host or host_name(host) not in self._hosts:
            raise MisdirectedHost(f"the host name {host_name(host)[:_FOLDED_LENGTH]!r} is not one of this server's")

    def check(self, method: str, headers: Mapping[str, str], cookie: str, *, is_socket: bool = False) -> None:
        """Check that a request may be answered at all.

        Raises: Unauthorized without the cookie; Forbidden for a request from elsewhere, or a change without the page's
        CSRF value.
        """
        if not _is_same(cookie, self._cookie):
            raise Unauthorized("open the address that this server printed when it started")
        self.check_origin(headers)
        if method in READING or is_socket:
            return
        if not _is_same(headers.get(CSRF_HEADER, ""), self.csrf):
            raise Forbidden(f"a change needs the header {CSRF_HEADER}, with the value that /ui/v1/meta says")

    def check_origin(self, headers: Mapping[str, str]) -> None:
        """Check that a request comes from no other page.

        Clients that are no browser send no origin. Raises: Forbidden.
        """
        origin = headers.get("Origin")
        if origin is not None and not self._is_own(origin, headers.get("Host", "")):
            raise Forbidden(f"the origin {origin[:_FOLDED_LENGTH]!r} is not this page's")

    @staticmethod
    def _is_own(origin: str, host: str) -> bool:
        return bool(host) and origin.lower() in (f"http://{host.lower()}", f"https://{host.lower()}")


def _is_same(given: str, known: str) -> bool:
    # The HTTP library shows bytes that are no UTF-8 as lone surrogates.
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), known.encode())


def policy(import_map_hashes: Collection[str] = ()) -> str:
    """Return the page's Content-Security-Policy. `import_map_hashes`: `sha256-…` of the import maps inside the page."""
    scripts = " ".join(("'self'", *(f"'{each}'" for each in import_map_hashes)))
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types keplab"
    )


SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every answer."""
