"""URLs in expressions. Pure.

Source: kubernetes/kubernetes staging/src/k8s.io/apiserver/pkg/cel/library/urls.go. Text is read as by Go's net/url.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from services.cel.types import opaque
from services.cel.values import EvaluationError, register, utf8

URL: Final = opaque("kubernetes.URL")
_HEX: Final = re.compile(rb"%([0-9a-fA-F]{2})")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")
_HOST: Final = re.compile(r"[A-Za-z0-9\-_.~!$&'()*+,;=:\[\]<>\"%\x80-\U0010ffff]")
_PATH: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~$&+,/:;=@")
_KEPT: Final = _PATH | frozenset("!'()*[]%")


@dataclass(frozen=True, slots=True)
class Url:
    """An absolute URL, or an absolute path. `path` is the path as written."""

    scheme: str
    host: str
    path: str
    query: str

    def hostname(self) -> str:
        """Return the host without port and brackets."""
        if self.host.startswith("["):
            return self.host[1:].partition("]")[0]
        return self.host.rpartition(":")[0] if ":" in self.host else self.host

    def port(self) -> str:
        """Return the port; empty if there is none."""
        rest = self.host.rpartition("]")[2] if self.host.startswith("[") else self.host
        return rest.rpartition(":")[2] if ":" in rest else ""

    def escaped_path(self) -> str:
        """Return the path as written if that is a valid encoding; otherwise escape it anew."""
        if self.path == "*" or _KEPT.issuperset(self.path):
            return self.path
        return "".join(chr(byte) if chr(byte) in _PATH else f"%{byte:02X}" for byte in _unescape(utf8(self.path)))

    def query_values(self) -> dict[str, list[str]]:
        """Return the query's values by key; unreadable ones are left out."""
        values: dict[str, list[str]] = {}
        for pair in self.query.split("&"):
            if not pair or ";" in pair or _wrong_escape(pair):
                continue
            key, _, value = pair.partition("=")
            values.setdefault(_text(key), []).append(_text(value))
        return values


register(Url, URL)


def _text(part: str) -> str:
    return _unescape(utf8(part.replace("+", " "))).decode(errors="replace")


def _unescape(part: bytes) -> bytes:
    return _HEX.sub(lambda match: bytes((int(match[1], 16),)), part)


def _wrong_escape(text: str) -> str:
    """Return the first `%` that begins no escape, with what follows; empty if there is none."""
    at = text.find("%")
    while at >= 0:
        if not re.fullmatch(r"%[0-9a-fA-F]{2}", text[at : at + 3]):
            return text[at : at + 3]
        at = text.find("%", at + 3)
    return ""


@lru_cache(maxsize=4096)
def url(text: str) -> Url:
    """Return the URL. Raises: EvaluationError."""
    found, reason = _parse(text)
    if found is None:
        shown = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        raise EvaluationError(f'URL parse error during conversion from string: parse "{shown}": {reason}')
    return found


def problem(text: str) -> str:
    """Return why the text is no valid URL, in Go's words; empty if it is valid."""
    found, reason = _parse(text)
    return "" if found is not None else f'parse "{text}": {reason}'


def _parse(text: str) -> tuple[Url | None, str]:
    if any(ord(sign) < 32 or ord(sign) == 127 for sign in text):
        return None, "net/url: invalid control character in URL"
    if not text:
        return None, "empty url"
    if text == "*":
        return Url("", "", "*", ""), ""
    match = _SCHEME.match(text)
    if match is None and text.startswith(":"):
        return None, "missing protocol scheme"
    scheme = match[1].lower() if match else ""
    rest = text[match.end() :] if match else text
    rest, _, query = rest.partition("#")[0].partition("?")
    if not rest.startswith("/"):
        if scheme:
            return Url(scheme, "", "", query), ""  # opaque, such as mailto:
        if ":" in rest.partition("/")[0]:
            return None, "first path segment in URL cannot contain colon"
        return None, "invalid URI for request"
    host = ""
    if (scheme or not rest.startswith("///")) and rest.startswith("//") and scheme:
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
        user, at, host = authority.rpartition("@")
        if at and not re.fullmatch(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*", user):
            return None, "net/url: invalid userinfo"
        if reason := _host_problem(host):
            return None, reason
        host = _unescape(utf8(host)).decode(errors="replace")
    if wrong := _wrong_escape(rest):
        return None, f'invalid URL escape "{wrong}"'
    return Url(scheme, host, rest, query), ""


def _host_problem(host: str) -> str:
    rest = host
    if host.startswith("["):
        _, bracket, rest = host.rpartition("]")
        if not bracket:
            return "missing ']' in host"
        if rest and not re.fullmatch(r":[0-9]*", rest):
            return f'invalid port "{rest}" after host'
    elif ":" in host and not re.fullmatch(r":[0-9]*", host[host.rindex(":") :]):
        return f'invalid port "{host[host.rindex(":") :]}" after host'
    if wrong := _wrong_escape(host):
        return f'invalid URL escape "{wrong}"'
    for sign in host:
        if not _HOST.match(sign):
            return f'invalid character "{sign}" in host name'
    return ""
