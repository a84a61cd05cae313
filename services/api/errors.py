"""The only error tree: `ApiError` and its children, by Kubernetes reason.

Each carries the HTTP code and the `Status` document that either server sends. Library errors are
translated at the border, once. `UnknownOutcome` is not an answer of the API server: it says that no
answer came, so a write may or may not have taken effect (guarantees C6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from services.api.texts import encodable, writable

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""Exceptions of decoding bytes that are not JSON of the expected form: msgspec's errors, and two that it does
not catch.
"""
_BY_CODE: dict[int, type[ApiError]] = {}
_WITHOUT_DETAILS = frozenset((400, 401, 406, 410, 413, 415))
"""HTTP codes whose Status has no details. Source: upstream
`staging/src/k8s.io/apimachinery/pkg/api/errors/errors.go`.
"""


class ApiError(Exception):
    """A refusal with a Kubernetes `Status`. A subclass with its own code uses its class name as reason by default.

    `details` is the Status's `details` object: `name`, `kind`, `group`, `uid`, `causes[]`, `retryAfterSeconds`.
    """

    reason = "InternalError"
    code = 500
    warnings: tuple[str, ...] = ()
    """Warnings that admission gave before it refused the request; sent with the refusal."""
    audit: Mapping[str, str] = MappingProxyType({})
    """Audit annotations that admission added before it refused the request."""

    def __init_subclass__(cls, code: int = 0, reason: str = "") -> None:
        if code:
            cls.code, cls.reason = code, reason or cls.__name__
            _BY_CODE[code] = cls

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        code: int = 0,
        details: dict[str, Any] | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or type(self).reason
        self.code = code or type(self).code
        self.details = dict(details or {})
        if retry_after_s is not None:
            self.details["retryAfterSeconds"] = retry_after_s

    @property
    def retry_after_s(self) -> int | None:
        """Seconds the server asked the client to wait; None if it did not ask."""
        return self.details.get("retryAfterSeconds")

    def status(self) -> dict[str, Any]:
        """Return the `Status` document of this error; its texts are always encodable."""
        details = {} if self.code in _WITHOUT_DETAILS and not self.details else {"details": writable(self.details)}
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": encodable(self.message),
            "reason": encodable(self.reason),
            **details,
            "code": self.code,
        }


class BadRequest(ApiError, code=400):
    """400: the request itself is malformed."""


class Unauthorized(ApiError, code=401):
    """401: an unknown identity."""


class Forbidden(ApiError, code=403):
    """403: this identity may not do that."""


class NotFound(ApiError, code=404):
    """404: no such object or resource."""


class MethodNotAllowed(ApiError, code=405):
    """405: the resource does not support this verb."""


class Conflict(ApiError, code=409):
    """409: another client wrote first, or a precondition failed; read again. `reason` may be more specific."""


class AlreadyExists(Conflict):
    """409 on create: the name is taken."""

    reason = "AlreadyExists"


class Expired(ApiError, code=410):
    """410: that resource version is older than the server remembers; relist."""


class RequestEntityTooLarge(ApiError, code=413):
    """413: body, object or patch above its limit."""


class UnsupportedMediaType(ApiError, code=415):
    """415: a body type this server does not read."""


class Invalid(ApiError, code=422):
    """422: the object breaks a rule; `details.causes` names the fields."""


class TooManyRequests(ApiError, code=429):
    """429: too many requests; retry after `retry_after_s`."""


class Unavailable(ApiError, code=503, reason="ServiceUnavailable"):
    """503: the server is shutting down, read-only, or not ready. The outcome is definite: nothing was written."""


class Timeout(ApiError, code=504):
    """504: a read had no answer in time; for a write the outcome is unknown."""


class UnknownOutcome(Exception):
    """No answer came: connection lost or deadline passed. A write may have taken effect (C6)."""


def from_status(code: int, body: bytes) -> ApiError:
    """Rebuild the error from a `Status` body; the inverse of `ApiError.status`."""
    try:
        status = msgspec.json.decode(body)
    except UNREADABLE:
        status = None
    if not isinstance(status, dict):
        status = {"message": body.decode("utf-8", "replace")}
    reason = str(status.get("reason") or "")
    cls = AlreadyExists if reason == "AlreadyExists" else _BY_CODE.get(code, ApiError)
    message = str(status.get("message") or f"the server answered {code}")
    details = status.get("details")
    return cls(message, reason=reason, code=code, details=details if isinstance(details, dict) else None)


def invalid(kind: str, name: str, causes: Sequence[tuple[str, str, str]]) -> Invalid:
    """Return a 422 that names kind (`Deployment.apps`), object and each field.

    `causes`: (field path, cause reason such as `FieldValueInvalid`, message). The text follows
    apimachinery: `Pod "x" is invalid: spec.a: Invalid value: …`, several in brackets, each once.
    """
    lines = list(dict.fromkeys(f"{path}: {message}" for path, _, message in causes))
    text = lines[0] if len(lines) == 1 else "[" + ", ".join(lines) + "]"
    short, _, group = kind.partition(".")
    about = {name: value for name, value in (("name", name), ("group", group), ("kind", short)) if value}
    return Invalid(
        f'{kind} "{name}" is invalid: {text}',
        details={**about, "causes": [{"reason": r, "message": m, **({"field": p} if p else {})} for p, r, m in causes]},
    )
