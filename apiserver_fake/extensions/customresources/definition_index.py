"""An index of the stored definitions, by group and without their schemas, so that one more definition costs
the same.

A definition is decoded when it is committed, and only the few members that are needed (decision 0087). Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypedDict

import msgspec

from apiserver_fake.storage.records import Record
from services.api.meta import Document


class _Metadata(TypedDict):
    name: str


class _Version(TypedDict):
    name: str
    served: bool


class _Spec(TypedDict):
    group: str
    versions: list[_Version]


class _Status(TypedDict, total=False):
    acceptedNames: Any


class _Head(TypedDict, total=False):
    """The members of a definition that are kept."""

    metadata: _Metadata
    spec: _Spec
    status: _Status


_HEAD: Final = msgspec.json.Decoder(_Head)
_NOTHING: Final[Mapping[str, Document]] = {}


class DefinitionIndex:
    """The kept members (heads) of all definitions."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, Document]] = {}

    def note(self, record: Record, *, is_gone: bool) -> None:
        """Add, replace or remove a committed definition."""
        group = group_of(record.name)
        if not is_gone:
            self._groups.setdefault(group, {})[record.name] = _HEAD.decode(record.body)  # type: ignore[assignment]
        elif (definitions := self._groups.get(group)) is not None:
            definitions.pop(record.name, None)
            if not definitions:
                del self._groups[group]

    def others(self, name: str) -> Iterator[tuple[str, Document]]:
        """Yield the other definitions of a definition's group: name, and the kept part of metadata, spec and status."""
        for other, head in self._groups.get(group_of(name), _NOTHING).items():
            if other != name:
                yield other, head

    def versions(self, name: str) -> list[str]:
        """Return the version names of a definition."""
        head = self._groups.get(group_of(name), _NOTHING).get(name)
        return [each["name"] for each in head["spec"]["versions"]] if head is not None else []

    def is_served(self, group: str, version: str) -> bool:
        """Whether a definition of the group serves that version."""
        heads = self._groups.get(group, _NOTHING).values()
        return any(each["name"] == version and each["served"] for head in heads for each in head["spec"]["versions"])


def group_of(name: str) -> str:
    """Return the group of a definition, whose name is `PLURAL.GROUP`."""
    return name.partition(".")[2]
