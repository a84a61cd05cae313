"""Lists that are sets, and lists whose items have keys: nothing is in them twice. Pure.

Source: kubernetes/kubernetes staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from apiserver_fake.customresources.causes import as_json, duplicate, invalid
from apiserver_fake.validation.formats import Cause, Causes


def causes(schema: Mapping[str, Any], value: Any, path: str) -> list[Cause]:
    """Return which items of lists in a value are there twice."""
    return list(_causes(schema, value, path))


def _causes(schema: Mapping[str, Any], value: Any, path: str) -> Causes:
    if isinstance(value, list):
        match schema.get("x-kubernetes-list-type"):
            case "set":
                yield from (duplicate(f"{path}[{place}]", value[place]) for place in _repeated(value))
            case "map":
                yield from _keyed(schema, value, path)
        items = schema.get("items")
        if isinstance(items, Mapping):
            for place, each in enumerate(value):
                if isinstance(each, dict | list):
                    yield from _causes(items, each, f"{path}[{place}]")
    elif isinstance(value, dict):
        named, others = schema.get("properties") or {}, schema.get("additionalProperties")
        for name, each in value.items():
            if not isinstance(each, dict | list):
                continue
            if isinstance(others, Mapping):
                yield from _causes(others, each, f"{path}[{name}]")
            if name in named:
                yield from _causes(named[name], each, f"{path}.{name}" if path else name)


def _repeated(values: list[Any]) -> Iterator[int]:
    """Yield where values are for the second time; a third is not told apart from it."""
    seen: dict[Any, int] = {}
    for place, each in enumerate(values):
        key = as_json(each) if isinstance(each, dict | list) else (type(each), each)
        times = seen[key] = seen.get(key, 0) + 1
        if times == 2:
            yield place


def _keyed(schema: Mapping[str, Any], value: list[Any], path: str) -> Causes:
    for place, each in enumerate(value):
        if each is not None and not isinstance(each, dict):
            yield invalid(f"{path}[{place}]", each, "must be an object for an array of list-type map")
            return
    names = schema.get("x-kubernetes-list-map-keys") or ()
    keys = [{name: each[name] for name in names if name in each} if each else {} for each in value]
    for place in _repeated(keys):
        yield duplicate(f"{path}[{place}]", keys[place])
