"""The schema of a version of a custom resource: pruning, defaults, validation, and its published form.
Pure.

    structural, causes = Structural.parse(schema, "spec.validation.openAPIV3Schema")
    structural.complete(document)          # defaults, in place; before that, drops nulls that are not allowed
    dropped = structural.prune(document)   # unknown fields, in place; returns their paths
    causes = structural.validate(document, old)

Everything that does not depend on a document is made once. Source: kubernetes/kubernetes
staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/schema, pkg/registry/customresource/strategy.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import msgspec

from apiserver_fake.extensions.customresources import embedded_resources as embedded
from apiserver_fake.extensions.customresources import openapi as published
from apiserver_fake.extensions.customresources import structurality
from apiserver_fake.extensions.customresources.causes import NO_PATH, invalid
from apiserver_fake.extensions.customresources.lists import Lists
from apiserver_fake.extensions.customresources.values import Pair, Values
from apiserver_fake.registry.schema.schemas import ANYTHING, Shape
from apiserver_fake.registry.validation.formats import Cause
from services.api.meta import Document, Resource
from services.cel.rules import OBJECT_LIMIT, RuleFaults, Rules

_BLOCKING: Final = frozenset(
    ("FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid")
)
"""Reasons of causes that keep validation rules from being evaluated."""
_UNCHECKED: Final = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation"
)
_OTHERS: Final = Shape()


@dataclass(frozen=True, eq=False)
class Structural:
    """A part of a structural schema: its `fields` and the `items` of a list.

    `is_map`: it has `additionalProperties`. `values`: schema of the map's values, None if none is given. `is_root`:
    it is the schema of a whole object.
    """

    schema: Document
    fields: Mapping[str, Structural] = field(default_factory=dict)
    items: Structural | None = None
    is_map: bool = False
    values: Structural | None = None
    is_root: bool = False

    @classmethod
    def parse(cls, schema: Document, path: str) -> tuple[Structural | None, list[Cause]]:
        """Return the schema of an object, or None and the causes. `path`: path of the schema in its definition."""
        if why := structurality.unreadable(schema):
            return None, [invalid(path, "", why)]
        causes = structurality.problems(schema, path)
        return (None if causes else cls.of(schema, is_root=True)), causes

    @classmethod
    def of(cls, schema: Document, *, is_root: bool = False) -> Structural:
        """Return a schema that is known to be structural, or a part of one."""
        items, others = schema.get("items"), schema.get("additionalProperties")
        return cls(
            schema,
            {name: cls.of(each) for name, each in (schema.get("properties") or {}).items()},
            cls.of(items) if isinstance(items, dict) else None,
            others is not None,
            cls.of(others) if isinstance(others, dict) else None,
            is_root,
        )

    @cached_property
    def _keeps_unknown(self) -> bool:
        return bool(self.schema.get("x-kubernetes-preserve-unknown-fields"))

    @cached_property
    def is_resource(self) -> bool:
        """Whether the part has apiVersion, kind and metadata of its own."""
        return self.is_root or bool(self.schema.get("x-kubernetes-embedded-resource"))

    @cached_property
    def _is_nullable(self) -> bool:
        return bool(self.schema.get("nullable"))

    @cached_property
    def default(self) -> Any:
        """The value that an absent value gets; None if there is no default."""
        return self.schema.get("default")

    # -- unknown fields

    def prune(self, document: Any) -> list[str]:
        """Drop the fields that the schema does not declare, in place; return their paths, sorted."""
        dropped: list[str] = []
        self._prune(document, "", dropped, is_kept=False)
        return sorted(dropped)

    def _prune(self, value: Any, path: str, dropped: list[str], *, is_kept: bool) -> None:
        """Drop unknown fields. `is_kept`: what the value is in keeps those that it does not describe."""
        is_kept = is_kept or self._keeps_unknown
        if isinstance(value, list):
            for place, child in enumerate(value):
                if isinstance(child, dict | list):
                    self._prune_item(child, f"{path}[{place}]", dropped, is_kept=is_kept)
        elif isinstance(value, dict):
            self._prune_object(value, path, dropped, is_kept=is_kept)

    def _prune_item(self, value: Any, path: str, dropped: list[str], *, is_kept: bool) -> None:
        if self.items is not None:
            self.items._prune(value, path, dropped, is_kept=is_kept)
        elif not is_kept:
            _drop_all(value, path, dropped)

    def _prune_object(self, value: dict[str, Any], path: str, dropped: list[str], *, is_kept: bool) -> None:
        fields, is_resource = self.fields, self.is_resource
        unknown = []
        for name, child in value.items():
            inner = fields.get(name)
            if is_resource and name in embedded.META:
                if name == "metadata" and not self.is_root:
                    embedded.prune_metadata(child, f"{path}.{name}" if path else name, dropped)
            elif inner is None and not self.is_map:
                if not is_kept:
                    unknown.append(name)
            elif isinstance(child, dict | list):
                inner = inner or self.values
                here = f"{path}.{name}" if path else name
                if inner is not None:
                    inner._prune(child, here, dropped, is_kept=False)
                else:
                    _drop_all(child, here, dropped)
        for name in unknown:
            del value[name]
            dropped.append(f"{path}.{name}" if path else name)

    # -- defaults

    def complete(self, document: Any) -> None:
        """Set the defaults, in place; a null that is not allowed counts as absent."""
        self._drop_nulls(document)
        self._complete(document)

    def _drop_nulls(self, value: Any) -> None:
        if isinstance(value, list):
            if self.items is not None:
                for child in value:
                    self.items._drop_nulls(child)
        elif isinstance(value, dict):
            nulls = []
            for name, child in value.items():
                inner = self.fields.get(name) or self.values
                if inner is None:
                    continue
                if child is not None:
                    inner._drop_nulls(child)
                elif not inner._is_nullable and inner.default is None:
                    nulls.append(name)
            for name in nulls:
                del value[name]

    @cached_property
    def _defaults(self) -> tuple[tuple[str, bytes, bool], ...]:
        """`(field, its default as JSON, whether null is a value of its own)`."""
        return tuple(
            (name, msgspec.json.encode(each.default), each._is_nullable)
            for name, each in self.fields.items()
            if each.default is not None
        )

    @cached_property
    def _has_defaults(self) -> bool:
        inside = [*self.fields.values(), *(each for each in (self.items, self.values) if each is not None)]
        return any(each.default is not None or each._has_defaults for each in inside)

    def _complete(self, value: Any) -> None:
        if not self._has_defaults:
            return
        if isinstance(value, dict):
            for name, default, is_nullable in self._defaults:
                if name not in value or (value[name] is None and not is_nullable):
                    value[name] = msgspec.json.decode(default)
            for name, child in value.items():
                inner = self.fields.get(name) or self.values
                if inner is None:
                    continue
                if child is None and name not in self.fields and not inner._is_nullable:
                    value[name] = child = _deep_copy(inner.default)
                if isinstance(child, dict | list):
                    inner._complete(child)
        elif isinstance(value, list) and self.items is not None:
            for place, child in enumerate(value):
                if child is None and not self.items._is_nullable:
                    value[place] = child = _deep_copy(self.items.default)
                if isinstance(child, dict | list):
                    self.items._complete(child)

    # -- validation

    @cached_property
    def _values(self) -> Values:
        return Values(self.schema)

    @cached_property
    def rules(self) -> Rules | None:
        """The compiled rules of `x-kubernetes-validations`; None if there are none."""
        return Rules.of(self.schema, is_root=self.is_resource)

    @cached_property
    def _status(self) -> Structural | None:
        return self.fields.get("status")

    def validate(
        self, new: Document, old: Document | None = None, *, known_causes: Iterable[Cause] = (), is_status: bool = False
    ) -> list[Cause]:
        """Return the errors in an object, in upstream's order; unchanged values are not refused again.

        `known_causes`: errors that other rules found before. Such an error, like a wrong type, can keep rules from
        being evaluated; then a cause says so. `is_status`: only the status subresource is written, so only the
        status is checked against the schema.
        """
        causes = self._value_causes(new, old, is_status=is_status)
        if not is_status:
            causes += self._resource_causes(new, "", is_top=True)
        if self._lists is not None and (twice := self._lists.causes(new)):
            causes += twice if old is None or not self._lists.causes(old) else []
        if self.rules is None:
            return causes
        if any(cause.reason in _BLOCKING for cause in (*known_causes, *causes)):
            return [*causes, invalid(NO_PATH, None, _UNCHECKED)]
        return causes + self.rule_causes(new, old).causes

    def rule_causes(self, new: Any, old: Any, *, path: str = "", budget: int = OBJECT_LIMIT) -> _Judged:
        """Return the causes of failed rules, and the remaining budget."""
        if self.rules is None:
            return _Judged([], budget)
        result: RuleFaults = self.rules.validate(new, old, path=path, budget=budget)
        return _Judged([Cause(each.path or NO_PATH, *each[1:]) for each in result.causes], result.left)

    def value_causes(self, value: Any, *, path: str) -> list[Cause]:
        """Return the errors in a value's types and limits; `path`: path of the value."""
        return self._values.causes(value, path=path)

    def _value_causes(self, new: Document, old: Document | None, *, is_status: bool) -> list[Cause]:
        if not is_status:
            return self._values.causes(new, None if old is None else Pair(new, old, self.schema))
        status = self._status
        if status is None or "status" not in new:
            return []
        was = None if old is None else Pair(new, old, self.schema).key("status")
        return status._values.causes(new["status"], was, path="status")

    @cached_property
    def _has_resources(self) -> bool:
        """Whether there are resources within it."""
        inside = (*self.fields.values(), self.items, self.values)
        return any(each is not None and (each.is_resource or each._has_resources) for each in inside)

    @cached_property
    def _lists(self) -> Lists | None:
        return Lists.of(self.schema)

    def resource_causes(self, value: Any, path: str) -> list[Cause]:
        """Return the errors in apiVersion, kind and metadata of a resource and of the resources embedded in it."""
        return self._resource_causes(value, path, is_top=False)

    def _resource_causes(self, value: Any, path: str, *, is_top: bool) -> list[Cause]:
        if not self._has_resources and (is_top or not self.is_resource):
            return []
        causes: list[Cause] = []
        if isinstance(value, dict):
            if self.is_resource and not is_top:
                causes += embedded.causes(value, path)
            for name, child in value.items():
                inner, here = self.fields.get(name), f"{path}.{name}" if path else name
                if inner is None:
                    inner, here = self.values, f"{path}[{name}]"
                if inner is not None:
                    causes += inner._resource_causes(child, here, is_top=False)
        elif isinstance(value, list) and self.items is not None:
            for place, child in enumerate(value):
                causes += self.items._resource_causes(child, f"{path}[{place}]", is_top=False)
        return causes

    # -- what others need of it

    @cached_property
    def shape(self) -> Shape:
        """The type of the values, for merging: which lists have keys or are sets, and which values are atomic."""
        schema = self.schema
        if schema.get("x-kubernetes-int-or-string"):
            return Shape("int-or-string")
        kind = str(schema.get("type") or "")
        if kind == "array" or (not kind and self.items is not None):
            return Shape(
                "array",
                items=ANYTHING if self.items is None else self.items.shape,
                list_type=str(schema.get("x-kubernetes-list-type") or ""),
                map_keys=tuple(schema.get("x-kubernetes-list-map-keys") or ()),
            )
        if kind not in ("object", ""):
            return Shape(kind, default=schema.get("default"))
        return self._object_shape(kind)

    def _object_shape(self, kind: str) -> Shape:
        is_atomic = self.schema.get("x-kubernetes-map-type") == "atomic"
        fields = {name: each.shape for name, each in self.fields.items()}
        if self.is_resource:
            texts = {"apiVersion": Shape("string"), "kind": Shape("string")}
            fields = {**fields, **texts, "metadata": embedded.object_meta()}
        others = self.values.shape if self.values is not None else _OTHERS if self._keeps_unknown else None
        if not fields and (others is None or others is _OTHERS):
            return Shape(kind, is_atomic=is_atomic)
        return Shape(kind, fields or None, others, is_atomic=is_atomic)

    def openapi(self, resource: Resource | None = None, *, is_v2: bool = False) -> Document:
        """Return the published form of the schema; `resource` gives its group, version and kind."""
        return published.published_schema(self.schema, resource, is_v2=is_v2)


@dataclass(frozen=True)
class _Judged:
    """The causes of failed rules, and the remaining budget; if that is below 0, not every rule was evaluated."""

    causes: list[Cause]
    left: int


def _deep_copy(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def _drop_all(value: Any, path: str, dropped: list[str]) -> None:
    """Drop all fields of a value of which the schema says nothing."""
    if isinstance(value, dict):
        dropped += (f"{path}.{name}" if path else name for name in value)
        value.clear()
    elif isinstance(value, list):
        for place, child in enumerate(value):
            _drop_all(child, f"{path}[{place}]", dropped)
