"""The read path of every kind: one object, a read form of it, a list, a page of a list.

The continue token of a page is opaque, signed, and bound to the list it came from (S10). Source: guarantees
table 2.1 for versions, kubectl-requests 5 and 7 for the answers.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from apiserver_fake.registry.catalogue import Catalogue
from apiserver_fake.registry.errors import check_scope, invalid_option, not_found
from apiserver_fake.registry.history import HISTORY, history
from apiserver_fake.registry.strategy import served_subresource
from apiserver_fake.storage.records import Page, Selection, parse_rv
from apiserver_fake.storage.store import Store
from services.api.errors import BadRequest, Expired, Invalid
from services.api.meta import Document, Key, Resource
from services.api.seams import Clock
from services.api.wire import Request, Response

LIST_PAGE_OBJECTS = 10_000
LIST_PAGE_BYTES = 4 << 20
LIFE_S = 300.0
_MAC_BYTES = 16


@dataclass(frozen=True)
class Cursor:
    """The position at which a list continues: after key `after`, at version `rv` (0: the newest)."""

    rv: int
    after: Key
    expires_at_s: float


class ContinueTokens:
    """Writes and reads continue tokens under one secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret = hashlib.sha256(b"continue\0" + secret).digest()

    @staticmethod
    def fingerprint(request: Request) -> bytes:
        """Return a hash of kind, namespace, name and selectors, which binds a token to one list."""
        parts = (request.resource, request.namespace, request.name, request.label_selector, request.field_selector)
        return hashlib.sha256("\0".join(parts).encode()).digest()[:12]

    def token(self, rv: int, after: Key, fingerprint: bytes, now_s: float) -> str:
        """Return a token that is valid for 5 minutes. `now_s`: monotonic."""
        payload = msgspec.json.encode([rv, after.namespace, after.name, fingerprint.hex(), now_s + LIFE_S])
        return base64.urlsafe_b64encode(self._mac(payload) + payload).decode().rstrip("=")

    def read(self, token: str, fingerprint: bytes) -> Cursor:
        """Return the token's cursor. Raises: BadRequest if it is forged, truncated, or of another list."""
        try:
            raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise BadRequest(
                "invalid continue token: continue key is not valid: it is not a token of this server"
            ) from None
        mac, payload = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(payload)):
            raise BadRequest("invalid continue token: continue key is not valid: it is not a token of this server")
        rv, namespace, name, of, expires_at_s = msgspec.json.decode(payload)
        if of != fingerprint.hex():
            raise BadRequest(
                "invalid continue token: continue key is not valid: it belongs to a list with other selectors"
            )
        return Cursor(rv, Key(namespace, name), expires_at_s)

    def _mac(self, payload: bytes) -> bytes:
        return hmac.digest(self._secret, payload, "sha256")[:_MAC_BYTES]


class NotYet(Exception):
    """The requested version is not visible yet; wait for `rv` and read again (S12)."""

    def __init__(self, rv: int) -> None:
        super().__init__(f"version {rv} is not visible yet")
        self.rv = rv


class Reads:
    """The read path of every kind."""

    def __init__(self, store: Store, catalogue: Catalogue, *, clock: Clock, cursors: ContinueTokens) -> None:
        self._catalogue = catalogue
        self._store, self._clock, self._cursors = store, clock, cursors

    def get(self, request: Request) -> Response:
        """Return the object, or the read form of a subresource. Raises: NotFound, Expired, NotYet."""
        resource = self._catalogue.find(request.resource)
        check_scope(resource, request)
        if request.subresource == HISTORY:
            return history(self._store, resource, request)
        if request.at:
            at = self._past(request)
            record = self._store.get_at(resource.name, request.namespace, request.name, at)
        else:
            self._reach(parse_rv(request.resource_version))
            record = self._store.get(resource.name, request.namespace, request.name)
        if record is None:
            # Upstream's scale of a StatefulSet passes its store's answer on, the others give their own.
            names_scale = request.subresource == "scale" and resource.plural != "statefulsets"
            raise not_found(resource, request.name, subresource="scale" if names_scale else "")
        if not request.subresource:
            return Response(code=200, rv=record.rv, body=record.body)
        stored = msgspec.json.decode(record.body)
        form = served_subresource(resource, self._catalogue.kind(resource.name).strategy, request).read(stored)
        body = record.body if form is stored else msgspec.json.encode(form)
        return Response(code=200, rv=record.rv, body=body)

    def list(self, request: Request) -> Response:
        """Return a snapshot of the selected objects, or a page of it (table 2.1). Raises: BadRequest, Expired,
        NotYet.
        """
        resource = self._catalogue.find(request.resource)
        check_scope(resource, request)
        selection = self.selection(resource, request)
        limit = min(request.limit, LIST_PAGE_OBJECTS) if request.limit > 0 else 0
        bytes_max = LIST_PAGE_BYTES if limit else 0
        fingerprint = ContinueTokens.fingerprint(request)
        if request.continue_token:
            if request.resource_version or request.resource_version_match or request.at:
                raise BadRequest("specifying resource version is not allowed when using continue")
            cursor = self._cursors.read(request.continue_token, fingerprint)
            self._reach(cursor.rv)  # another API server may have given the token
            rv, after = cursor.rv or self._store.rv, cursor.after
            is_expired = cursor.expires_at_s < self._clock.now() and bool(cursor.rv)
        else:
            rv, after, is_expired = self._version_of(request, limit), None, False
        try:
            if is_expired:
                raise Expired("")
            page = self._store.select(resource.name, selection, at=rv, after=after, limit=limit, bytes_max=bytes_max)
        except Expired:
            raise self._expired_error(after, fingerprint) from None
        token = ""
        if page.next_after is not None:
            token = self._cursors.token(rv, page.next_after, fingerprint, self._clock.now())
        head, items = list_head(resource, page, rv, token), tuple([record.body for record in page.records])
        if request.is_split:
            return Response(code=200, rv=rv, body=head, items=items, records=page.records)
        return Response(code=200, rv=rv, body=with_items(head, items))

    def selection(self, resource: Resource, request: Request) -> Selection:
        """Return the selection that the request asks for. Raises: BadRequest."""
        field_selector = request.field_selector
        if request.name:
            name = f"metadata.name={request.name}"
            field_selector = f"{field_selector},{name}" if field_selector else name
        return Selection.parse(resource, request.namespace, request.label_selector, field_selector)

    def _past(self, request: Request) -> int:
        """Return the version at which the objects are wanted. Raises: BadRequest, NotYet."""
        at = parse_rv(request.at)
        if not at:
            raise BadRequest('at: Invalid value: "0": want a version from 1 on')
        if request.resource_version or request.resource_version_match:
            text = f'at: Invalid value: "{at}": not beside resourceVersion "{request.resource_version}"'
            raise BadRequest(f"{text}: it is the version already")
        self._reach(at)
        return at

    def _version_of(self, request: Request, limit: int) -> int:
        if request.at:
            return self._past(request)
        wanted, match = parse_rv(request.resource_version), request.resource_version_match
        if match not in ("", "Exact", "NotOlderThan"):
            message = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""'
            raise invalid_option("ListOptions", "resourceVersionMatch", "FieldValueNotSupported", message)
        if match and not request.resource_version:
            raise _forbidden_match("resourceVersionMatch is forbidden unless resourceVersion is provided")
        if match == "Exact" and wanted == 0:
            raise _forbidden_match('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
        self._reach(wanted)
        is_exact = match == "Exact" or (not match and bool(limit) and wanted > 0)
        return wanted if is_exact else self._store.rv

    def _reach(self, wanted: int) -> None:
        if wanted > self._store.rv:
            raise NotYet(wanted)

    def _expired_error(self, after: Any, fingerprint: bytes) -> Expired:
        if after is None:
            return Expired("The resourceVersion for the provided list is too old.")
        # A client that can live with an inconsistent list may go on at the newest state.
        token = self._cursors.token(0, after, fingerprint, self._clock.now())
        error = ExpiredPage(
            "The provided continue parameter is too old to display a consistent list result. You can start a new "
            "list without the continue parameter, or use the continue token in this response to retrieve the "
            "remainder of the results."
        )
        error.continue_token = token
        return error


def _forbidden_match(why: str) -> Invalid:
    return invalid_option("ListOptions", "resourceVersionMatch", "FieldValueForbidden", f"Forbidden: {why}")


class ExpiredPage(Expired):
    """410 for a page, with a token for the rest of the list at the newest version."""

    continue_token = ""

    def status(self) -> dict[str, Any]:
        """Return the Status, with the token in its metadata."""
        return {**super().status(), "metadata": {"continue": self.continue_token}}


def with_items(head: bytes, items: Iterable[bytes]) -> bytes:
    """Return a list document with these items, given as JSON."""
    return b"".join((head[:-1], b',"items":[', b",".join(items), b"]}"))


def list_head(resource: Resource, page: Page, rv: int, token: str) -> bytes:
    """Return the list document without its items."""
    metadata: Document = {"resourceVersion": str(rv)}
    if token:
        metadata["continue"] = token
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
    return msgspec.json.encode({"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": metadata})
