"""Which form a client accepts, and turning what it sends into JSON.

`Accept` is read the way client-go writes it: a list of media types, the first one that this server can
make wins. Bodies may be JSON, YAML (V3: no anchors, no aliases, bounded) or Kubernetes protobuf.
"""

from dataclasses import dataclass
from functools import lru_cache

import msgspec
import yaml

from apiserver_fake.rest import protobuf
from apiserver_fake.rest.protobuf import NotAcceptable
from services.api.errors import BadRequest, RequestEntityTooLarge, UnsupportedMediaType

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = protobuf.MEDIA_TYPE
BODY_MAX_BYTES = 3 * 1024 * 1024
"""The largest REST body (L-BODY)."""
YAML_MAX_BYTES = 1024 * 1024
YAML_NODES_MAX = 100_000
YAML_DEPTH_MAX = 64

PATCH_TYPES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}


@dataclass(frozen=True)
class Form:
    """The form of an answer: `convert` is "", Table, PartialObjectMetadata or APIGroupDiscoveryList."""

    media_type: str = JSON
    convert: str = ""
    version: str = ""

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


@lru_cache(maxsize=512)
def negotiate(accept: str, conversions: tuple[str, ...] = ()) -> Form:
    """Return the first acceptable form; `conversions` are the ones this answer can be made into.

    Protobuf is made for those who take nothing else: nearly every client that asks for it also accepts JSON, which is
    stored and costs nothing. Raises: NotAcceptable.
    """
    if not accept.strip():
        return PLAIN
    takes_protobuf = False
    for clause in accept.split(","):
        media_type, *raw = [part.strip() for part in clause.split(";")]
        options = dict(part.partition("=")[::2] for part in raw)
        if options.get("q") in ("0", "0.0"):
            continue
        if media_type in (JSON, "*/*", "application/*"):
            media_type = JSON
        elif media_type in (YAML, "text/yaml", "application/x-yaml"):
            media_type = YAML
        else:
            takes_protobuf = takes_protobuf or (media_type == PROTOBUF and "as" not in options)
            continue
        wanted = options.get("as", "")
        if not wanted:
            return Form(media_type)
        convert = _CONVERSIONS.get((options.get("g", ""), wanted), "")
        if convert in conversions and options.get("v") in _VERSIONS[convert]:
            return Form(media_type, convert, options["v"])
    if takes_protobuf:
        return Form(PROTOBUF)
    raise NotAcceptable(
        f"only the following media types are accepted: {JSON}, {YAML}, {PROTOBUF}",
        details={"causes": [{"message": accept[:200]}]},
    )


def media_type_of(content_type: str) -> str:
    """Return the media type without parameters; a missing one is JSON."""
    return content_type.partition(";")[0].strip().lower() or JSON


def unsupported(accepted: list[str]) -> UnsupportedMediaType:
    """Return the 415 of a body in a form that is not read here."""
    return UnsupportedMediaType(
        "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
    )


def patch_type_of(content_type: str) -> str:
    """Return json, merge, strategic or apply. Raises: UnsupportedMediaType."""
    found = PATCH_TYPES.get(media_type_of(content_type) if content_type else "")
    if found is None:
        raise unsupported(list(PATCH_TYPES))
    return found


def json_of(body: bytes, content_type: str) -> bytes:
    """Return a create, update or delete body as JSON; JSON itself passes. Raises: UnsupportedMediaType, BadRequest."""
    media_type = media_type_of(content_type)
    if media_type == JSON or not body:
        return body
    if media_type in (YAML, "text/yaml", "application/x-yaml"):
        return json_from_yaml(body)
    if media_type == PROTOBUF:
        return msgspec.json.encode(protobuf.decode(body))
    raise unsupported([JSON, YAML, PROTOBUF])


class _Loader(yaml.SafeLoader):
    """Safe, and reads timestamps as the text they are: JSON has no dates."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def json_from_yaml(body: bytes) -> bytes:
    """Return one YAML document as JSON (V3).

    Raises: RequestEntityTooLarge above 1 MiB; BadRequest for anchors, aliases, more than 100 000 nodes, more
    than 64 levels, or text that is not one YAML document.
    """
    if len(body) > YAML_MAX_BYTES:
        raise RequestEntityTooLarge(f"a YAML body may have {YAML_MAX_BYTES} bytes, this one has {len(body)}")
    stripped = body.lstrip()
    if stripped.startswith(b"{"):
        # Clients send JSON under a YAML type; JSON is YAML, and far cheaper to read.
        return body
    try:
        text = body.decode("utf-8")
        depth = 0
        for nodes, event in enumerate(yaml.parse(text, _Loader)):
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                raise BadRequest("yaml: anchors and aliases are not read")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if nodes > YAML_NODES_MAX or depth > YAML_DEPTH_MAX:
                raise BadRequest(f"yaml: more than {YAML_NODES_MAX} nodes or {YAML_DEPTH_MAX} levels")
        return msgspec.json.encode(yaml.load(text, _Loader))
    except (yaml.YAMLError, UnicodeError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise BadRequest(f"yaml: {error}") from error
