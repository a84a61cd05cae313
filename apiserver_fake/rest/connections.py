"""The options of connections, as admission sees them for an exec, an attach, a port-forward or a proxy.
Pure.

They are read from the query, those of a proxy from the path behind it. Mutating admission may change them; the
connection is opened with the result. Source: upstream
`staging/src/k8s.io/apiserver/pkg/endpoints/handlers/rest.go` (ConnectResource), `get.go` (getRequestOptions),
`staging/src/k8s.io/api/core/v1/types.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec
from multidict import MultiDict, MultiMapping

from apiserver_fake.registry.admission.attributes import CONNECTION_KINDS
from apiserver_fake.rest.parameters import is_set
from services.api.errors import ApiError, BadRequest
from services.api.meta import Document

Query = MultiMapping[str]
EXEC: Final = "PodExecOptions"
_FLAGS: Final = ("stdin", "stdout", "stderr", "tty")


_Fields = tuple[tuple[str, Any, Any], ...]
_STREAMS: Final[_Fields] = (*((name, bool, False) for name in _FLAGS), ("container", str, ""))
_PROXY: Final[_Fields] = (("path", str, ""),)
_FIELDS: Final[Mapping[str, _Fields]] = {
    EXEC: (*_STREAMS, ("command", list[str] | None, None)),
    "PodAttachOptions": _STREAMS,
    "PodPortForwardOptions": (("ports", list[int] | None, None),),
    "PodProxyOptions": _PROXY,
    "ServiceProxyOptions": _PROXY,
    "NodeProxyOptions": _PROXY,
}
_FORMS: Final = {
    kind: msgspec.defstruct(
        kind, [("kind", str, ""), ("api_version", str, ""), *fields], omit_defaults=True, rename="camel"
    )
    for kind, fields in _FIELDS.items()
}


def ports_of(query: Query) -> list[int]:
    """Return the ports to forward. Raises: BadRequest for an invalid port."""
    ports = [port for text in query.getall("ports", []) for port in text.split(",") if port]
    for port in ports:
        if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise BadRequest(f"ports={port[:20]!r}: want a number from 1 to 65535")
    return [int(port) for port in ports]


def options_of(resource: str, subresource: str, query: Query, path: str) -> Document:
    """Return the options of a request. `path`: the decoded path behind `proxy`. Raises: BadRequest."""
    if "dryRun" in query:
        raise BadRequest("dryRun is not supported")
    kind = CONNECTION_KINDS[resource, subresource]
    options: Document = {"kind": kind.kind, "apiVersion": kind.api_version}
    match subresource:
        case "portforward":
            if ports := ports_of(query):
                options["ports"] = ports
        case "proxy":
            if path:
                options["path"] = path
        case _:
            options |= {name: True for name in _FLAGS if is_set(query, name)}
            if container := query.get("container", ""):
                options["container"] = container
            if subresource == "exec":
                options["command"] = query.getall("command", []) or None
    return options


def complete_options(options: Document) -> Document:
    """Return changed options after decoding them again: unknown fields are dropped. Raises: ApiError for a
    value of another type.
    """
    try:
        read = msgspec.convert(options, _FORMS[str(options.get("kind"))])
    except (KeyError, msgspec.ValidationError) as error:
        text = f"the options of the connection cannot be read as admission left them: {error}"
        raise ApiError(f"Internal error occurred: {text}", details={"causes": [{"message": text}]}) from None
    plain_options: Document = msgspec.to_builtins(read)
    if options["kind"] == EXEC:
        plain_options.setdefault("command", None)  # written also when there is none
    return plain_options


def query_of(options: Document) -> Query:
    """Return the query of a request with these options."""
    query: MultiDict[str] = MultiDict()
    for name in _FLAGS:
        if options.get(name):
            query.add(name, "true")
    if options.get("container"):
        query.add("container", options["container"])
    for word in options.get("command") or ():
        query.add("command", word)
    for port in options.get("ports") or ():
        query.add("ports", str(port))
    return query


def raw_path_of(options: Document) -> str:
    """Return the path that a proxy requests, without its first slash, encoded as in a request line."""
    return quote(str(options.get("path", "")).removeprefix("/"), safe="/:@!$&'()*+,;=~")
