"""The rules of one defined kind: reading, writing, its status and its scale.

A document is read with the schema of its own version: defaults, then pruning. It is validated with the schema
of the version in which its writer sent it. Source: upstream
`staging/src/k8s.io/apiextensions-apiserver/pkg/registry/customresource`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import msgspec

from apiserver_fake.extensions.customresources import jsonpath
from apiserver_fake.extensions.customresources.scale import problems as scale_problems
from apiserver_fake.extensions.customresources.structural import Structural
from apiserver_fake.registry.errors import qualified_kind
from apiserver_fake.registry.schema.schemas import Shape, component_shape
from apiserver_fake.registry.strategy import Strategy, Subresource, SubresourceResult, WriteContext
from apiserver_fake.registry.validation.formats import Cause, metadata, subdomain, value_text
from services.api.errors import ApiError, BadRequest, MethodNotAllowed, invalid
from services.api.meta import Document

_META = component_shape("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
ENVELOPE = Shape(
    "object", {"apiVersion": Shape("string"), "kind": Shape("string"), "metadata": _META}, keeps_unknown=True
)
"""The type that every custom resource has, whatever its schema."""


Further = Callable[[Document], list[Cause]]
"""Function that returns the errors in an object that no schema can express."""


@dataclass(frozen=True)
class ScalePaths:
    """Paths to the desired replicas, the observed replicas, and the pod selector (None if there is none) of an
    object.
    """

    desired: tuple[str, ...]
    observed: tuple[str, ...]
    selector: tuple[str, ...] | None

    @classmethod
    def of(cls, scale: Document) -> ScalePaths:
        """Read `subresources.scale` of a definition's version."""
        selector = scale.get("labelSelectorPath")
        return cls(
            jsonpath.names(scale["specReplicasPath"]),
            jsonpath.names(scale["statusReplicasPath"]),
            jsonpath.names(selector) if selector else None,
        )


@dataclass(frozen=True, eq=False)
class Rules:
    """The rules that a definition sets for its objects. `structurals` and `scales` are keyed by apiVersion.

    `is_renamed`: the versions differ in name alone, so that an object stored in another version is read as one of
    the version `stored`.
    """

    stored: str
    structurals: Mapping[str, Structural]
    scales: Mapping[str, Document]
    has_status: bool
    is_renamed: bool
    further: Further | None = None
    """Called for objects that are valid by their schema."""

    @cached_property
    def scale(self) -> ScalePaths | None:
        """Paths in stored objects that the scale subresource reads and writes; None without that subresource."""
        found = self.scales.get(self.stored) or next(iter(self.scales.values()), None)
        return None if found is None else ScalePaths.of(found)

    @property
    def subresources(self) -> dict[str, Subresource]:
        """The subresources that the definition itself adds: scale, if it has one."""
        if self.scale is None:
            return {}
        own = Subresource(
            "*",
            "scale",
            ("get", "update", "patch"),
            partial(_write_scale, self),
            self._read_scale,
            body=("autoscaling/v1", "Scale"),
        )
        return {"scale": own}

    def structural_of(self, document: Document) -> Structural:
        """Return the schema of the document's version; that of the stored version if its version no longer exists."""
        return self.structurals.get(str(document.get("apiVersion"))) or self.structurals[self.stored]

    def read(self, document: Document) -> tuple[Document, list[str]]:
        """Return a copy with defaults and without unknown fields, and the paths of the unknown fields."""
        copy: Document = msgspec.json.decode(msgspec.json.encode(document))
        structural = self.structural_of(copy)
        structural.complete(copy)
        dropped = structural.prune(copy)
        return copy, [*_prune_metadata(copy), *dropped]

    def read_stored(self, document: Document) -> tuple[Document, list[str]]:
        """Return a stored object as a write of it sees it, and the paths of its unknown fields."""
        read, dropped = self.read(document)
        if self.is_renamed:
            read["apiVersion"] = self.stored
        return read, dropped

    def prune(self, document: Document) -> Document:
        """Return the document without the fields that its version does not have; changes it in place."""
        self.structural_of(document).prune(document)
        return document

    def check(self, new: Document, old: Document | None, subresource: str) -> tuple[Document, list[str], list[Cause]]:
        """Return an object sent in a version other than the stored one: as it is read, the paths of the fields that
        were dropped, and its errors.
        """
        read, dropped = self.read(new)
        if subresource == "status" and old is not None:
            status = {"status": read["status"]} if "status" in read else {}
            read = {**{name: each for name, each in old.items() if name != "status"}, "metadata": read["metadata"]}
            read.update(status)
        elif self.has_status:
            self.keep_status(read, old)
        return read, dropped, self.causes(read, old, is_status=subresource == "status")

    def keep_status(self, new: Document, old: Document | None) -> None:
        """Replace the status of `new`, which only the status subresource may write, by that of `old`."""
        new.pop("status", None)
        if old is not None and "status" in old:
            new["status"] = old["status"]

    def causes(
        self, new: Document, old: Document | None, known_causes: Iterable[Cause] = (), *, is_status: bool = False
    ) -> list[Cause]:
        """Return the errors in the object by the schema of its version, after `known_causes`, the errors already
        known.
        """
        scale = self.scales.get(str(new.get("apiVersion")))
        known_causes = [*known_causes, *(scale_problems(scale, new, is_status=is_status) if scale is not None else ())]
        wrong = [
            *known_causes,
            *self.structural_of(new).validate(new, old, known_causes=known_causes, is_status=is_status),
        ]
        return wrong if wrong or self.further is None or is_status else self.further(new)

    def _read_scale(self, stored: Document) -> Document:
        assert self.scale is not None, "only kinds with a scale have one"
        paths, meta = self.scale, stored["metadata"]
        desired = _value_at(stored, paths.desired)
        if desired is None:
            where = "." + ".".join(paths.desired)
            raise ApiError(f'Internal error occurred: the spec replicas field "{where}" does not exist')
        status: Document = {"replicas": _value_at(stored, paths.observed) or 0}
        if paths.selector is not None and (selector := _value_at(stored, paths.selector)):
            status["selector"] = selector
        named = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {name: meta[name] for name in named if name in meta},
            "spec": {"replicas": desired} if desired else {},
            "status": status,
        }


def _prune_metadata(document: Document) -> list[str]:
    meta = document.get("metadata")
    if not isinstance(meta, dict):
        return []
    known = _META.fields or {}
    unknown = [name for name in meta if name not in known]
    document["metadata"] = {name: value for name, value in meta.items() if name in known}
    return [f"metadata.{name}" for name in unknown]


def _value_at(document: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _with_value(document: Document, path: tuple[str, ...], value: Any) -> Document:
    first, *rest = path
    inner = document.get(first)
    inside = value if not rest else _with_value(inner if isinstance(inner, dict) else {}, tuple(rest), value)
    return {**document, first: inside}


def _write_scale(rules: Rules, stored: Document, body: Document, ctx: WriteContext) -> SubresourceResult:
    assert rules.scale is not None, "only kinds with a scale have one"
    spec = body.get("spec") or {}
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else None
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        text = (
            f"Scale in version v1 cannot be handled as a Scale: spec.replicas is {value_text(replicas)}, not a number"
        )
        raise BadRequest(text)
    old = rules.read_stored(stored)[0]
    if _value_at(old, rules.scale.desired) == replicas:
        return SubresourceResult()
    new = _with_value(old, rules.scale.desired, replicas)
    new["metadata"] = {**new["metadata"], "generation": int(new["metadata"].get("generation") or 0) + 1}
    if causes := rules.causes(new, old):
        raise invalid(qualified_kind(stored), ctx.request.name, causes)
    return SubresourceResult(document=new)


def strategy_of(rules: Rules, *, is_terminating: bool) -> Strategy:
    """Return the rules of the kind as a strategy of the registry's write path."""

    def prepare_create(new: Document, ctx: WriteContext) -> None:
        if is_terminating:
            raise MethodNotAllowed("create not allowed while custom resource definition is terminating")
        if rules.has_status:
            rules.keep_status(new, None)
        new["metadata"]["generation"] = 1
        _warn_of_finalizers(new, None, ctx)

    def prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
        if rules.has_status:
            rules.keep_status(new, old)
        if _content(old) != _content(new):
            new["metadata"]["generation"] = int(old["metadata"].get("generation") or 0) + 1
        _warn_of_finalizers(new, old, ctx)

    def validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
        causes = [*metadata(new, subdomain, is_custom=True)]
        # What came in another version was checked by that version's schema before it was converted.
        return causes if _was_converted(rules, ctx) else rules.causes(new, old, causes)

    def validate_status(old: Document, new: Document, ctx: WriteContext) -> list[Cause]:
        return [] if _was_converted(rules, ctx) else rules.causes(new, old, is_status=True)

    return Strategy(
        prepare_create=prepare_create,
        prepare_update=prepare_update,
        validate=validate,
        validate_status=validate_status,
        typed=ENVELOPE,
        read=rules.read,
        read_stored=rules.read_stored,
        subresources=rules.subresources,
        needs_version=True,
    )


def _was_converted(rules: Rules, ctx: WriteContext) -> bool:
    return ctx.request.api_version not in ("", rules.stored)


def _content(document: Document) -> Document:
    return {name: value for name, value in document.items() if name not in ("metadata", "apiVersion")}


def _warn_of_finalizers(new: Document, old: Document | None, ctx: WriteContext) -> None:
    before = [] if old is None else old["metadata"].get("finalizers") or []
    for name in sorted(set(new["metadata"].get("finalizers") or []) - set(before)):
        if "/" not in name and name not in ("orphan", "foregroundDeletion", "kubernetes"):
            ctx.warnings.append(
                f'metadata.finalizers: "{name}": prefer a domain-qualified finalizer name including a path (/) to '
                "avoid accidental conflicts with other finalizer writers"
            )
