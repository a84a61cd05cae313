"""Blocks: text inside a scenario, instead of a file beside it; YAML with its lines. Pure.

    apply <<EOF
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: settings}
    EOF

A block begins on a line that ends with `<<WORD` and ends with a line that is WORD alone. Nothing in it is
substituted.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from apiserver_fake.registry.schema.schemas import Mistyped, conform, shape_of
from lab.scenarios.script.value_types import suggestion
from services.api.documents import yaml_text
from services.api.errors import BadRequest
from services.api.meta import Document, Resource
from services.api.resources import resource_of_kind, resources
from services.kwok.definitions import problem_of
from services.kwok.definitions import resources as kwok_resources
from services.kwok.kind import API_VERSION

_OPENS = re.compile(r"(?:^|(?<=\s))<<\s*(?P<quote>['\"]?)(?P<word>[A-Za-z_][\w.-]*)(?P=quote)$")
_PART = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")


@dataclass(frozen=True)
class Block:
    """A text and its place: `first_line` is the number of its first line in `source`."""

    source: str
    text: str
    first_line: int = 1

    def place(self, line: int) -> str:
        """Return the place of a line as an error names it; lines of the block count from 0."""
        return f"{self.source}:{self.first_line + line}"


def opening(line: str) -> tuple[str, str]:
    """Return the line without `<<WORD`, and the word that ends its block; the word is empty if no block opens.
    Raises: ValueError.
    """
    match = _OPENS.search(line)
    if match is None:
        return line, ""
    return line[: match.start()].rstrip(), match["word"]


def closing(lines: list[str], start: int, word: str) -> int:
    """Return the number of the line, from `start` on, that ends the block. Raises: ValueError when none does."""
    for number in range(start, len(lines)):
        if lines[number].strip() == word:
            return number
    raise ValueError(f"the block that begins here has no end; want a line that is {word} alone")


@dataclass(frozen=True)
class Part:
    """One document of a block: its object and the line of each field, by path; lines count from 0."""

    block: Block
    document: Any
    lines: Mapping[str, int]

    def line_of(self, path: str) -> int:
        """Return the line of a field, or of its nearest existing ancestor."""
        parts = _parts(path)
        while parts and _join_path(parts) not in self.lines:
            parts.pop()
        return self.lines.get(_join_path(parts), 0)

    def place(self, path: str = "") -> str:
        """Return the place of a field as an error names it: `t.txt:17`."""
        return self.block.place(self.line_of(path))

    @property
    def name(self) -> str:
        """Object as an error names it: `ConfigMap settings`."""
        if not isinstance(self.document, Mapping):
            return "the object"
        metadata = self.document.get("metadata")
        name = metadata.get("name") or metadata.get("generateName") if isinstance(metadata, Mapping) else None
        return " ".join(str(each) for each in (self.document.get("kind", "object"), name) if each)


class BlockError(ValueError):
    """A block that cannot be used; the message begins with file and line."""


def _parts(path: str) -> list[str]:
    return [match[1] or match[2] for match in _PART.finditer(path)]


def _join_path(parts: Iterable[str]) -> str:
    return "\0".join(parts)


def parts_of(block: Block) -> Iterator[Part]:
    """Yield the YAML documents of a block, except empty ones. Raises: BlockError with the line."""
    try:
        documents = list(yaml_text.load_located(block.text))
    except yaml_text.YamlError as error:
        raise BlockError(f"{block.place(error.line)}: {error.problem}") from None
    for document, lines in documents:
        if document is not None:
            yield Part(block, document, {_join_path(path): line for path, line in lines.items()})


def objects_of(block: Block) -> Iterator[tuple[Part, Resource]]:
    """Yield the Kubernetes objects of a block with their resources; a List is expanded, as by `kubectl`. Raises:
    BlockError naming line, object and field.
    """
    for part in parts_of(block):
        for each in _members(part):
            yield each, _checked_resource(each)


def _members(part: Part) -> Iterator[Part]:
    """Yield the objects of a List, or the one object."""
    document = part.document
    kind = document.get("kind") if isinstance(document, Mapping) else None
    if not isinstance(kind, str) or not kind.endswith("List") or not isinstance(document.get("items"), list):
        yield part
        return
    of_items = {} if kind == "List" else {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List")}
    for number, item in enumerate(document["items"]):
        at = _join_path(("items", str(number)))
        lines = {
            path.removeprefix(at).lstrip("\0"): line
            for path, line in part.lines.items()
            if f"{path}\0".startswith(f"{at}\0")
        }
        yield Part(part.block, {**of_items, **item} if isinstance(item, Mapping) else item, lines)


def _checked_resource(part: Part) -> Resource:
    """Return the resource of an object. Raises: BlockError where the API server could not read it, naming the field."""
    document = part.document
    if not isinstance(document, Mapping):
        raise BlockError(f"{part.place()}: want an object with apiVersion and kind, not {type(document).__name__}")
    version, kind = document.get("apiVersion"), document.get("kind")
    for name, value in (("apiVersion", version), ("kind", kind)):
        if not isinstance(value, str) or not value:
            raise BlockError(f"{part.place(name)}: {part.name}: {name}: want a text, not {value!r}")
    resource = resource_of_kind(str(version), str(kind))
    if version == API_VERSION and (kwok_resource := kwok_resources().get(str(kind))) is not None:
        if (problem := problem_of(dict(document))) is not None:
            raise BlockError(f"{part.place(problem.path)}: {part.name}: {problem.path}: {problem.message}")
        return kwok_resource
    if resource is None:
        raise BlockError(
            f"{part.place(_unserved_field(str(kind)))}: {part.name}: {_not_served(str(version), str(kind))}"
        )
    _conform(part, dict(document), resource)
    return resource


def _unserved_field(kind: str) -> str:
    """Return which of the two fields is wrong."""
    return "apiVersion" if any(each.kind == kind for each in resources().values()) else "kind"


def _not_served(version: str, kind: str) -> str:
    served = [each.api_version for each in resources().values() if each.kind == kind]
    if served:
        return f"apiVersion: {version!r}: {kind} is served as {', '.join(dict.fromkeys(served))}"
    kinds = sorted({each.kind for each in resources().values()})
    return f"kind: no kind {kind!r} in {version!r} is served{suggestion(kind, kinds)}"


def _conform(part: Part, document: Document, resource: Resource) -> None:
    unknown: list[str] = []
    try:
        conform(
            shape_of(resource.api_version, resource.kind), resource.api_version, resource.kind, document, None, unknown
        )
    except Mistyped as error:
        raise BlockError(
            f"{part.place(error.path)}: {part.name}: {error.path}: {error.value!r}: {error.mistake}"
        ) from None
    except BadRequest as error:
        raise BlockError(f"{part.place()}: {part.name}: {error.message}") from None
    if unknown:
        raise BlockError(f"{part.place(unknown[0])}: {part.name}: no field {unknown[0]!r} in {resource.kind}")


_MENTIONED = re.compile(r"[A-Za-z][\w-]*(?:\[\d+\]|\.[\w-]+)*")


def locate_error(block: Block, error: Exception) -> BlockError:
    """Return the error for a reader of the block's text, with the line of the first field that it names."""
    try:
        parts = list(parts_of(block))
    except BlockError as malformed:
        return malformed
    text = str(error)
    for match in _MENTIONED.finditer(text):
        for part in parts:
            if _join_path(_parts(match[0])) in part.lines:
                return BlockError(f"{part.place(match[0])}: {text}")
    return BlockError(f"{block.place(0)}: {text}")
