"""Uniqueness in lists that are sets and in lists whose items have keys. Pure.

Source: kubernetes/kubernetes
staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apiserver_fake.extensions.customresources.causes import as_json, duplicate, invalid
from apiserver_fake.registry.validation.formats import Cause, Causes


@dataclass(frozen=True)
class Lists:
    """A part of a schema that is, or contains, a set or a list with keys. `kind`: set, map, or "" if it only
    contains them.
    """

    kind: str
    keys: Sequence[str]
    items: Lists | None
    named: Mapping[str, Lists]
    others: Lists | None

    @staticmethod
    def of(schema: Any) -> Lists | None:
        """Return the part; None if it contains no such lists."""
        if not isinstance(schema, Mapping):
            return None
        kind = schema.get("x-kubernetes-list-type")
        named = {name: Lists.of(each) for name, each in (schema.get("properties") or {}).items()}
        lists = Lists(
            kind if kind in ("set", "map") else "",
            schema.get("x-kubernetes-list-map-keys") or (),
            Lists.of(schema.get("items")),
            {name: each for name, each in named.items() if each is not None},
            Lists.of(schema.get("additionalProperties")),
        )
        return lists if lists.kind or lists.items or lists.named or lists.others else None

    def causes(self, value: Any) -> list[Cause]:
        """Return the causes for duplicate list items in an object."""
        return list(self._causes(value, ""))

    def _causes(self, value: Any, path: str) -> Causes:
        if isinstance(value, list):
            if self.kind == "set":
                yield from (duplicate(f"{path}[{place}]", value[place]) for place in _duplicate_places(value))
            elif self.kind == "map":
                yield from _key_causes(self.keys, value, path)
            if self.items is not None:
                for place, entry in enumerate(value):
                    yield from self.items._causes(entry, f"{path}[{place}]")
        elif isinstance(value, dict):
            if self.others is not None:
                for name, entry in value.items():
                    yield from self.others._causes(entry, f"{path}[{name}]")
            for name, inner in self.named.items():
                if name in value:
                    yield from inner._causes(value[name], f"{path}.{name}" if path else name)


def _duplicate_places(values: list[Any]) -> Iterator[int]:
    """Yield where values are for the second time; a third is not told apart from it."""
    seen: dict[Any, int] = {}
    for place, value in enumerate(values):
        key = as_json(value) if isinstance(value, dict | list) else (type(value), value)
        times = seen[key] = seen.get(key, 0) + 1
        if times == 2:
            yield place


def _key_causes(names: Sequence[str], value: list[Any], path: str) -> Causes:
    for place, entry in enumerate(value):
        if entry is not None and not isinstance(entry, dict):
            yield invalid(f"{path}[{place}]", entry, "must be an object for an array of list-type map")
            return
    keys = [{name: each[name] for name in names if name in each} if each else {} for each in value]
    for place in _duplicate_places(keys):
        yield duplicate(f"{path}[{place}]", keys[place])
