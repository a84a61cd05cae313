"""Negotiation of the form of answers, and conversion of request bodies to JSON.

`Accept` is a list of media types; the most preferred one that this server can make is chosen. Bodies may be
JSON, YAML (V3: no anchors, no aliases, bounded) or Kubernetes protobuf.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
import yaml
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from apiserver_fake.rest import protobuf
from apiserver_fake.rest.protobuf import NotAcceptable
from services.api.documents.yaml_text import TAG_MISTAKES, tag_mistake
from services.api.errors import BadRequest, RequestEntityTooLarge, UnsupportedMediaType

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = protobuf.MEDIA_TYPE
BODY_MAX_BYTES = 3 * 1024 * 1024
"""The largest REST body (L-BODY)."""
APPLY = "application/apply-patch+yaml"
YAML_MAX_BYTES = 1024 * 1024
YAML_AT_ONCE_BYTES = 16 * 1024
"""Most bytes of YAML that are parsed in the event loop; parsing them takes milliseconds."""
YAML_NODES_MAX = 100_000
YAML_DEPTH_MAX = 64

PATCH_TYPES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    APPLY: "apply",
}


@dataclass(frozen=True)
class Form:
    """The form of an answer. `convert`: "", Table, PartialObjectMetadata or APIGroupDiscoveryList.

    `is_pretty`: the caller wants it indented.
    """

    media_type: str = JSON
    convert: str = ""
    version: str = ""
    is_pretty: bool = False

    @property
    def content_type(self) -> str:
        """The answer's Content-Type."""
        if self.convert == "APIGroupDiscoveryList":
            return f"{self.media_type};g=apidiscovery.k8s.io;v={self.version};as={self.convert}"
        return self.media_type


PLAIN = Form()
_CONVERSIONS = {
    ("meta.k8s.io", "Table"): "Table",
    ("meta.k8s.io", "PartialObjectMetadata"): "PartialObjectMetadata",
    ("meta.k8s.io", "PartialObjectMetadataList"): "PartialObjectMetadata",
    ("apidiscovery.k8s.io", "APIGroupDiscoveryList"): "APIGroupDiscoveryList",
}
_VERSIONS = {
    "Table": ("v1", "v1beta1"),
    "PartialObjectMetadata": ("v1", "v1beta1"),
    "APIGroupDiscoveryList": ("v2", "v2beta1"),
}
_FORMS = (JSON, YAML, PROTOBUF)
_STREAMS = f"{JSON};stream=watch", f"{PROTOBUF};stream=watch"
"""Media types of a watch; YAML has no stream form."""


def clauses_of(accept: str) -> list[tuple[str, str, dict[str, str]]]:
    """Return type, subtype and parameters of each clause: higher quality first, then the more specific ones.

    RFC 9110 12.5.1 defines quality.
    """
    clauses: list[tuple[float, str, str, dict[str, str]]] = []
    for clause in accept.split(","):
        media_type, *raw = [part.strip() for part in clause.split(";")]
        options = dict(part.partition("=")[::2] for part in raw)
        main, slash, sub = media_type.partition("/")
        if not slash and main != "*":
            continue
        try:
            quality = float(options.pop("q", "1"))
        except ValueError:
            quality = 1.0
        clauses.append((quality, main.strip(), sub.strip() or "*", options))
    clauses.sort(key=lambda each: (-each[0], each[1] == "*", each[2] == "*"))
    return [each[1:] for each in clauses]


def _form_of(media_type: str, options: dict[str, str], conversions: tuple[str, ...]) -> Form | None:
    """Return the form that a clause asks for in that media type; None where there is none such."""
    if options.get("stream", "watch") not in ("", "watch") or options.get("sv"):
        return None
    is_pretty = options.get("pretty") == "1"
    asked = [options.get(name, "") for name in ("g", "as", "v")]
    if not any(asked):
        return Form(media_type, is_pretty=is_pretty)
    group, kind, version = asked
    convert = _CONVERSIONS.get((group, kind), "")
    if convert not in conversions or version not in _VERSIONS[convert]:
        return None
    if media_type == PROTOBUF and convert != "PartialObjectMetadata":
        return None
    return Form(media_type, convert, version, is_pretty)


@lru_cache(maxsize=512)
def negotiate(accept: str, conversions: tuple[str, ...] = (), *, is_stream: bool = False) -> Form:
    """Return the form that a client prefers; `conversions` are the conversions possible for this answer.

    Protobuf is only made for clients that accept nothing else: nearly every client that asks for it also accepts
    JSON, which is stored and costs nothing. Metadata alone is made in either form, as the client prefers: informers
    of metadata compare the objects of a list and of a watch, and in JSON a list's items have a kind. Raises:
    NotAcceptable.

    Source: upstream `staging/src/k8s.io/apiserver/pkg/endpoints/handlers/negotiation/negotiate.go`.
    """
    if not accept:
        return PLAIN
    protobuf_form: Form | None = None
    for main, sub, options in clauses_of(accept):
        for media_type in _FORMS:
            if main != "*" and media_type.partition("/")[0] != main:
                continue
            if sub != "*" and media_type.partition("/")[2] != sub:
                continue
            form = _form_of(media_type, options, conversions)
            if form is None or (protobuf_form is not None and form.convert != protobuf_form.convert):
                continue
            if is_stream and media_type == YAML:
                raise not_acceptable(_STREAMS)
            if media_type != PROTOBUF or form.convert:
                return form
            protobuf_form = form
    if protobuf_form is not None:
        return protobuf_form
    raise not_acceptable(_FORMS)


def not_acceptable(forms: Sequence[str]) -> NotAcceptable:
    """Return the 406 that names the available forms."""
    return NotAcceptable(f"only the following media types are accepted: {', '.join(forms)}")


def media_type_of(content_type: str) -> str:
    """Return the media type without parameters; JSON if it is missing."""
    return content_type.partition(";")[0].strip().lower() or JSON


def unsupported_media_type(accepted: list[str]) -> UnsupportedMediaType:
    """Return the 415 for a body in an unsupported media type."""
    return UnsupportedMediaType(
        "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
    )


def patch_type_of(content_type: str) -> str:
    """Return json, merge, strategic or apply. Raises: UnsupportedMediaType."""
    found = PATCH_TYPES.get(media_type_of(content_type) if content_type else "")
    if found is None:
        raise unsupported_media_type(list(PATCH_TYPES))
    return found


def json_of(body: bytes, content_type: str) -> bytes:
    """Return a create, update or delete body as JSON; JSON is returned as it is. Raises: UnsupportedMediaType,
    BadRequest.
    """
    media_type = media_type_of(content_type)
    if media_type == JSON or not body:
        return body
    if media_type == YAML:
        return json_from_yaml(body)
    if media_type == PROTOBUF:
        return msgspec.json.encode(protobuf.decode(body))
    raise unsupported_media_type([JSON, YAML, PROTOBUF])


class _Parser(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The YAML scanner, parser and composer; ten times faster if PyYAML was built with libyaml."""


class _Scalars(SafeConstructor, Resolver):
    """Resolver of plain YAML scalars. Timestamps stay text, because JSON has no dates."""

    def __init__(self) -> None:
        SafeConstructor.__init__(self)
        Resolver.__init__(self)

    def json_of(self, event: Any) -> bytes:
        """Return a scalar as JSON, what JSON cannot say as the text that its decoder refuses."""
        resolve: Any = self.resolve
        tag = event.tag or resolve(yaml.ScalarNode, event.value, event.implicit)
        if tag in (_TEXT, _TIMESTAMP):
            return msgspec.json.encode(event.value)
        scalar = self.construct_object(yaml.ScalarNode(tag, event.value, event.start_mark, event.end_mark), deep=True)
        if isinstance(scalar, float) and not math.isfinite(scalar):
            return repr(scalar).encode()
        return msgspec.json.encode(scalar)


_TEXT, _TIMESTAMP = "tag:yaml.org,2002:str", "tag:yaml.org,2002:timestamp"
_COLLECTIONS = frozenset((None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"))


def json_from_yaml(body: bytes) -> bytes:
    """Return one YAML document as JSON (V3); a duplicate key of a mapping stays duplicate.

    Raises: RequestEntityTooLarge above 1 MiB; BadRequest for anchors, aliases, more than 100 000 nodes, more than
    64 levels, or text that is not one YAML document.
    """
    if len(body) > YAML_MAX_BYTES:
        raise RequestEntityTooLarge(f"a YAML body may have {YAML_MAX_BYTES} bytes, this one has {len(body)}")
    stripped = body.lstrip()
    if stripped.startswith(b"{"):
        # Clients send JSON under a YAML type; JSON is YAML, and far cheaper to read.
        return body
    try:
        return _json_of_yaml(body.decode("utf-8"))
    except (yaml.YAMLError, UnicodeError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise BadRequest(f"yaml: {error}") from error
    except TAG_MISTAKES as error:
        raise BadRequest(f"yaml: {tag_mistake(error)}") from error


def _json_of_yaml(text: str) -> bytes:
    """Return the JSON of one document, made while it is read: nothing is built that could be larger than the text."""
    parts = [b""]
    scalars = _Scalars()
    # For each open collection: whether it is a mapping, and how many nodes it has so far.
    open_ones: list[tuple[bool, int]] = []
    documents = 0
    events: Iterator[Any] = yaml.parse(text, _Parser)
    for nodes, event in enumerate(events):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise BadRequest("yaml: anchors and aliases are not read")
        if nodes > YAML_NODES_MAX or len(open_ones) > YAML_DEPTH_MAX:
            raise BadRequest(f"yaml: more than {YAML_NODES_MAX} nodes or {YAML_DEPTH_MAX} levels")
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise BadRequest("yaml: expected a single document in the stream, but found another document")
        elif isinstance(event, yaml.CollectionEndEvent):
            is_mapping, _ = open_ones.pop()
            parts.append(b"}" if is_mapping else b"]")
        elif isinstance(event, yaml.NodeEvent):
            is_key = False
            if open_ones:
                is_mapping, count = open_ones[-1]
                open_ones[-1] = is_mapping, count + 1
                is_key = is_mapping and count % 2 == 0
                parts.append(b":" if is_mapping and not is_key else b"," if count else b"")
            if isinstance(event, yaml.ScalarEvent):
                scalar_json = scalars.json_of(event)
                # JSON has no keys but texts.
                parts.append(scalar_json if not is_key or scalar_json.startswith(b'"') else b'"%b"' % scalar_json)
            elif is_key:
                raise BadRequest("yaml: a key is a mapping or a list, want a text")
            elif (tag := getattr(event, "tag", None)) not in _COLLECTIONS:
                raise BadRequest(f"yaml: could not determine a constructor for the tag {tag!r}")
            else:
                is_mapping = isinstance(event, yaml.MappingStartEvent)
                open_ones.append((is_mapping, 0))
                parts.append(b"{" if is_mapping else b"[")
    return b"".join(parts) or b"null"
