"""YAML whose values carry their line and column, read as strictly as upstream reads its files. Pure.

Duplicate keys, more than 100 aliases, nesting deeper than 64 and documents above 4 MiB are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import yaml

from services.api.documents import yaml_text

ALIASES_MAX: Final = 100
NESTING_MAX: Final = 64
BYTES_MAX: Final = 4 * 2**20


class FileError(ValueError):
    """An error in a file: `PATH:LINE:COLUMN: text`, as far as the place is known."""

    def __init__(self, path: str, text: str, line: int = 0, column: int = 0) -> None:
        place = f":{line}:{column}" if line else ""
        super().__init__(f"{path}{place}: {text}")


@dataclass(frozen=True)
class Located:
    """A mapping of names to `Located`, a list of them, or a scalar; line and column count from 1.

    `keys`: place of each key, for a mapping.
    """

    value: Any
    line: int
    column: int
    keys: dict[str, tuple[int, int]]

    @property
    def plain(self) -> Any:
        """The value as plain Python objects, without places."""
        if isinstance(self.value, dict):
            return {name: each.plain for name, each in self.value.items()}
        if isinstance(self.value, list):
            return [each.plain for each in self.value]
        return self.value

    def at(self, path: tuple[str, ...]) -> tuple[int, int]:
        """Return the line and column of the value at that path, or of its nearest existing ancestor."""
        here: Located = self
        place = (here.line, here.column)
        for step in path:
            if isinstance(here.value, dict) and step in here.value:
                place, here = here.keys[step], here.value[step]
            elif isinstance(here.value, list) and step.isdigit() and int(step) < len(here.value):
                here = here.value[int(step)]
                place = (here.line, here.column)
            else:
                break
        return place


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The safe loader without dates, which JSON does not have."""


_OTHERWISE: Final = frozenset(f"tag:yaml.org,2002:{name}" for name in ("timestamp", "int", "float"))
_INT: Final = re.compile(r"[-+]?(?:0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$")
_FLOAT: Final = re.compile(
    r"(?:[-+]?[0-9][0-9_]*(?:\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)|\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag not in _OTHERWISE]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# As Go's YAML: 1e-9 is a number, and 1:30 none.
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))


def load(path: str, text: str) -> Located:
    """Parse a text that holds one document. Raises: FileError."""
    if len(text.encode()) > BYTES_MAX:
        raise FileError(path, f"{len(text.encode()):,} bytes: at most {BYTES_MAX:,}")
    try:
        _check_events(path, text)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return Located(None, 1, 1, {})
            return _locate(path, loader, node, set())
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        line, column, problem = yaml_text.mistake_of(error)
        raise FileError(path, problem, line, column) from None


def _check_events(path: str, text: str) -> None:
    aliases = depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        mark = event.start_mark
        place = (mark.line + 1, mark.column + 1) if mark is not None else ()
        if isinstance(event, yaml.AliasEvent):
            aliases += 1
            if aliases > ALIASES_MAX:
                raise FileError(path, f"more than {ALIASES_MAX} aliases", *place)
        elif isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > NESTING_MAX:
                raise FileError(path, f"nested deeper than {NESTING_MAX}", *place)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _locate(path: str, loader: Any, node: yaml.Node, above: set[int]) -> Located:
    line, column = node.start_mark.line + 1, node.start_mark.column + 1
    if id(node) in above:
        raise FileError(path, "an alias stands within what it names", line, column)
    if isinstance(node, yaml.SequenceNode):
        items = [_locate(path, loader, each, above | {id(node)}) for each in node.value]
        return Located(items, line, column, {})
    if not isinstance(node, yaml.MappingNode):
        return Located(loader.construct_object(node), line, column, {})
    own: set[str] = set()
    for key, _ in node.value:
        if key.value in own:
            raise FileError(
                path, f"key {key.value!r} is given twice", key.start_mark.line + 1, key.start_mark.column + 1
            )
        own.add(key.value)
    loader.flatten_mapping(node)  # merged keys come first, so that own ones win
    members: dict[str, Located] = {}
    keys: dict[str, tuple[int, int]] = {}
    for key, value in node.value:
        name = str(key.value)
        keys[name] = (key.start_mark.line + 1, key.start_mark.column + 1)
        members[name] = _locate(path, loader, value, above | {id(node)})
    return Located(members, line, column, keys)
