"""Validation of the defaults in a schema against the schema itself. Pure.

Source: kubernetes/kubernetes
staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from apiserver_fake.extensions.customresources import embedded_resources as embedded
from apiserver_fake.extensions.customresources.causes import invalid
from apiserver_fake.extensions.customresources.structural import Structural
from apiserver_fake.registry.validation.formats import Cause
from services.api.meta import Document
from services.cel.rules import OBJECT_LIMIT

_TYPE: Final = {"apiVersion": "validation/v1", "kind": "Validation"}
Trail = tuple[str | None, ...]
"""The path from a resource to a part of it: field names, None for a list item."""


def problems(schema: Structural, path: str) -> list[Cause]:
    """Return the causes of refused defaults. `path`: path of the schema in its definition."""
    check = _Check()
    check.walk(schema, path, schema, (), is_meta=False)
    return check.causes


class _Check:
    def __init__(self) -> None:
        self.causes: list[Cause] = []
        self.left = OBJECT_LIMIT

    def walk(self, schema: Structural, path: str, resource: Structural, trail: Trail, *, is_meta: bool) -> None:
        """Check the default of a part and those in it. `is_meta`: it is in what every resource has."""
        if schema.is_resource:
            resource, trail, is_meta = schema, (), False
        if schema.default is not None:
            self._check(schema, f"{path}.default", resource, trail, is_meta=is_meta)
        inside: list[tuple[Structural, str, str | None]] = []
        if schema.items is not None:
            inside.append((schema.items, f"{path}.items", None))
        inside += ((each, f"{path}.properties[{name}]", name) for name, each in schema.fields.items())
        for part, where, step in inside:
            if self.left < 0:
                return
            of_meta = is_meta or (schema.is_resource and step in embedded.META)
            self.walk(part, where, resource, (*trail, step), is_meta=of_meta)

    def _check(self, schema: Structural, path: str, resource: Structural, trail: Trail, *, is_meta: bool) -> None:
        default = schema.default
        if is_meta:
            causes = resource.resource_causes(_wrap_in_resource(default, trail), "")
            if causes:
                detail = f"must result in valid metadata: {_together(causes)}"
                self.causes.append(invalid(path, default, detail))
                return
        else:
            copy = msgspec.json.decode(msgspec.json.encode(default))
            if schema.prune(copy):
                self.causes.append(invalid(path, default, "must not have unknown fields"))
            causes = schema.resource_causes(default, path)
        causes = causes or schema.value_causes(default, path=path)
        if not causes:
            causes = self._rule_causes(schema, default, path)
        self.causes += causes

    def _rule_causes(self, schema: Structural, default: Any, path: str) -> list[Cause]:
        """Return which rules the default breaks, where it stays and where it is new."""
        stays = schema.rule_causes(default, default, path=path, budget=self.left)
        causes, left = stays.causes, stays.left
        if not causes:
            comes = schema.rule_causes(default, None, path=path, budget=self.left)
            causes, left = comes.causes, min(left, comes.left)
        self.left = left
        return causes


def _wrap_in_resource(value: Any, trail: Trail) -> Document:
    """Return a resource that has the value at that place."""
    for step in reversed(trail):
        value = [value] if step is None else {step: value}
    return {**_TYPE, **value}


def _together(causes: Iterable[Cause]) -> str:
    texts = [f"{cause.path}: {cause.message}" for cause in causes]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
