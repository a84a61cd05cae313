"""Continue tokens of lists: opaque, signed, bound to the list they came from (S10)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass

import msgspec

from services.api.errors import BadRequest
from services.api.meta import Key
from services.api.wire import Request

LIFE_S = 300.0
_MAC_BYTES = 16


@dataclass(frozen=True)
class Cursor:
    """Where a list goes on: behind key `after`, at version `rv` (0: the newest)."""

    rv: int
    after: Key
    expires_at_s: float


class ContinueTokens:
    """Writes and reads continue tokens under one secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret = hashlib.sha256(b"continue\0" + secret).digest()

    @staticmethod
    def fingerprint(request: Request) -> bytes:
        """Return what ties a token to one list: kind, namespace and selectors."""
        parts = (request.resource, request.namespace, request.name, request.label_selector, request.field_selector)
        return hashlib.sha256("\0".join(parts).encode()).digest()[:12]

    def token(self, rv: int, after: Key, fingerprint: bytes, now_s: float) -> str:
        """Return a token that is good for 5 minutes. `now_s`: monotonic."""
        payload = msgspec.json.encode([rv, after.namespace, after.name, fingerprint.hex(), now_s + LIFE_S])
        return base64.urlsafe_b64encode(self._mac(payload) + payload).decode().rstrip("=")

    def read(self, token: str, fingerprint: bytes) -> Cursor:
        """Return the token's cursor. Raises: BadRequest when it is forged, torn, or of another list."""
        try:
            raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise BadRequest("continue key is not valid: it is not a token of this server") from None
        mac, payload = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(payload)):
            raise BadRequest("continue key is not valid: it is not a token of this server")
        rv, namespace, name, of, expires_at_s = msgspec.json.decode(payload)
        if of != fingerprint.hex():
            raise BadRequest("continue key is not valid: it belongs to a list with other selectors")
        return Cursor(rv, Key(namespace, name), expires_at_s)

    def _mac(self, payload: bytes) -> bytes:
        return hmac.digest(self._secret, payload, "sha256")[:_MAC_BYTES]
