"""Remove from objects and lines what may not be recorded or shown: values of Secrets, tokens, private keys. Pure.

It is applied before anything is written, so that no file has to be trusted to hide what it holds. A value
becomes `••• 12 bytes`. Hashes over a Secret's values are removed as well: a reader who knows everything else of
an object can find a short password by trying.
"""

import base64
import binascii
import re
from typing import Any, Final

import msgspec

from services.api.errors import UNREADABLE
from services.api.meta import Document
from services.telemetry.eventlog import Line

SECRETS: Final = "secrets"
SECRET_KIND: Final = "Secret"
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_TOKEN: Final = re.compile(rb"eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}")
"""Pattern of a signed token (RFC 7519), such as those of service accounts."""
_AUTHORIZATION: Final = re.compile(rb"\b([Bb]earer|[Bb]asic) +([A-Za-z0-9._~+/=-]{8,})")
_PRIVATE_KEY: Final = re.compile(rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL)
_KUBECONFIG: Final = re.compile(
    rb"\b(?P<name>client-key-data|token|password)(?:"
    rb"(?P<colon>: *)(?!\xe2\x80\xa2)(?P<plain>[^\s\\\"',{}\[\]]{3,})"
    rb"|(?P<quoted>\\*[\"']?: *(?P<quote>\\*[\"']))(?!\xe2\x80\xa2)(?P<text>(?:[^\"\\]|\\.)+?)(?<!\\)(?P=quote))"
)
"""Pattern of the credentials in a kubeconfig that stands in a ConfigMap or an annotation.

It matches YAML or JSON, as text inside JSON, and as text inside that again, as `kubectl apply` notes it. A
replacement for a hidden value does not match.
"""


def placeholder(size: int) -> str:
    """Return the replacement for a value of that many bytes."""
    return f"••• {size} bytes"


def redact(resource: str, body: bytes) -> bytes:
    """Return the body of an object as it may be recorded; the same bytes if nothing has to be hidden.

    A Secret that cannot be read becomes an empty document.
    """
    if resource != SECRETS:
        return redacted_text(body)
    try:
        document = msgspec.json.decode(body, type=dict[str, Any])
    except UNREADABLE:
        return b"{}"
    return msgspec.json.encode(redacted_secret(document))


def redacted_secret(secret: Document) -> Document:
    """Return a Secret without its values, also those in the annotation of `kubectl apply`."""
    new_secret = dict(secret)
    for field in ("data", "stringData"):
        if isinstance(values := new_secret.get(field), dict):
            new_secret[field] = {name: placeholder(_size(value, field)) for name, value in values.items()}
    metadata = new_secret.get("metadata")
    if isinstance(metadata, dict) and isinstance(notes := metadata.get("annotations"), dict):
        kept = {
            name: placeholder(len(str(text).encode())) if name == LAST_APPLIED or _is_revealing(text) else text
            for name, text in notes.items()
        }
        new_secret["metadata"] = {**metadata, "annotations": kept}
    return new_secret


def redacted_text(text: bytes) -> bytes:
    """Return JSON (or any text) without its tokens, credentials and private keys."""
    if not may_leak(text):
        return text
    text = _PRIVATE_KEY.sub(_placeholder_bytes, text)
    text = _TOKEN.sub(_placeholder_bytes, text)
    text = _AUTHORIZATION.sub(lambda found: found[1] + b" " + placeholder(len(found[2])).encode(), text)
    return _KUBECONFIG.sub(_without_value, text)


def may_leak(text: bytes) -> bool:
    """Return whether JSON (or any text) may hold something to hide.

    False for several lines is false for each of them.
    """
    # Every line and every body passes here: a rare byte is looked for first, which is many times faster than a word,
    # as a word is than a pattern.
    return (
        b"client-key-data" in text
        or (b"J" in text and b"eyJ" in text)
        or (b" " in text and (b"earer " in text or b"asic " in text or b"PRIVATE KEY" in text))
        or (b"oken" in text and (b"token:" in text or b"oken\\" in text))
        or (b"assword" in text and (b"password:" in text or b"assword\\" in text))
    )


def redacted_line(line: Line) -> Line:
    """Return a line of the event log as it may be recorded: without hashes over values of Secrets."""
    data = line.data
    if "state_hash" not in data and "versions_hash" not in data:
        of_secret = (line.obj is not None and line.obj["kind"] == SECRET_KIND) or data.get("resource") == SECRETS
        if not of_secret or "content_sha256" not in data:
            return line
        return msgspec.structs.replace(line, data={**data, "content_sha256": ""})
    kept = {name: value for name, value in data.items() if name not in ("state_hash", "versions_hash")}
    return redacted_line(msgspec.structs.replace(line, data=kept))


def _placeholder_bytes(found: "re.Match[bytes]") -> bytes:
    return placeholder(len(found[0])).encode()


def _without_value(found: "re.Match[bytes]") -> bytes:
    if found["plain"] is not None:
        return found["name"] + found["colon"] + placeholder(len(found["plain"])).encode()
    return found["name"] + found["quoted"] + placeholder(len(found["text"])).encode() + found["quote"]


def _is_revealing(text: object) -> bool:
    return isinstance(text, str) and redacted_text(text.encode()) != text.encode()


def _size(value: object, field: str) -> int:
    """Return how many bytes a value has: of `data`, without base64."""
    text = str(value).encode()
    if field == "data":
        try:
            return len(base64.b64decode(text, validate=True))
        except (binascii.Error, ValueError):
            pass
    return len(text)
