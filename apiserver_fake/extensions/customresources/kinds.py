"""The served kind of a CustomResourceDefinition: names, versions, columns, rules.

A definition is read once per generation. A change of its conditions alone (that it is being deleted) costs
little. Source: upstream `staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import msgspec

from apiserver_fake.extensions.customresources import jsonpath
from apiserver_fake.extensions.customresources.columns import columns_of
from apiserver_fake.extensions.customresources.rules import Further, Rules, strategy_of
from apiserver_fake.extensions.customresources.structural import Structural
from apiserver_fake.registry.catalogue import Kind
from apiserver_fake.registry.conversion import Conversion
from apiserver_fake.registry.served_version import ServedVersion
from services.api.errors import ApiError
from services.api.kinds.customresourcedefinition import CustomResourceDefinition, defined_resource
from services.api.meta import Document, Resource, find_condition

DELETING_VERBS = ("delete", "deletecollection", "get", "list", "watch")
"""Verbs that discovery shows for a kind whose definition is being deleted."""
_EVERYTHING: Document = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class Converter(Protocol):
    """Converts whole objects of one kind to another version of it."""

    async def __call__(self, documents: list[Document], api_version: str) -> list[Document]:
        """Return the documents in that version. Raises: ApiError."""
        ...


MakeConverter = Callable[[Document], Converter]
"""Function that returns the converter of a definition with `strategy: Webhook`."""


def no_converter(definition: Document) -> Converter:
    """Return a converter for a server that cannot call webhooks: every conversion fails with an error that says so."""

    async def convert(documents: list[Document], api_version: str) -> list[Document]:
        name = definition["metadata"]["name"]
        raise ApiError(f"conversion webhook for {name} failed: this server calls no webhooks")

    return convert


@dataclass(frozen=True)
class _Read:
    """The parts of one generation of a definition that do not depend on its conditions."""

    key: tuple[Any, ...]
    rules: Rules
    converter: Converter | None
    """None: versions differ in their name alone."""


class DefinedKinds:
    """The kinds of the stored definitions. Pure except for its cache."""

    def __init__(self, make_converter: MakeConverter, further: Mapping[str, Further] | None = None) -> None:
        """Start empty. `further`: by definition name, a check of objects beyond their schema."""
        self._make_converter, self._further = make_converter, further or {}
        self._read: dict[str, _Read] = {}
        self._kinds: dict[str, tuple[Any, Kind]] = {}

    def kind_of(self, document: Document) -> Kind | None:
        """Return the kind of a definition; None while it is not established.

        The same object is returned as long as nothing relevant changed.
        """
        definition = msgspec.convert(document, CustomResourceDefinition)
        stored = defined_resource(definition)
        name = definition.metadata.name
        if stored is None:
            self.forget(name)
            return None
        key = (definition.metadata.uid, definition.metadata.generation)
        known = self._read.get(name)
        if known is None or known.key != key:
            known = self._read[name] = self._fresh(key, document, stored)
        terminating = find_condition(definition.status.conditions, "Terminating")
        is_terminating = terminating is not None and terminating.status == "True"
        shown = (key, definition.status.accepted_names, definition.status.stored_versions, is_terminating)
        if name not in self._kinds or self._kinds[name][0] != shown:
            kind = _kind(document, definition, stored, known, is_terminating=is_terminating)
            self._kinds[name] = (shown, kind)
        return self._kinds[name][1]

    def forget(self, name: str) -> None:
        """Remove the definition of that name from the cache, because it is gone."""
        self._read.pop(name, None)
        self._kinds.pop(name, None)

    def _fresh(self, key: tuple[Any, ...], document: Document, stored: Resource) -> _Read:
        spec = document["spec"]
        structurals: dict[str, Structural] = {}
        scales: dict[str, Document] = {}
        has_status = False
        for version in spec["versions"]:
            schema = (version.get("schema") or {}).get("openAPIV3Schema") or _EVERYTHING
            structural = Structural.parse(schema, "")[0] or Structural.parse(_EVERYTHING, "")[0]
            assert structural is not None, "the schema that takes everything is structural"
            api_version = f"{stored.group}/{version['name']}"
            structurals[api_version] = structural
            subresources = version.get("subresources") or {}
            has_status = has_status or "status" in subresources
            if scale := subresources.get("scale"):
                scales[api_version] = scale
        conversion = spec.get("conversion") or {}
        converter = self._make_converter(document) if conversion.get("strategy") == "Webhook" else None
        rules = Rules(
            stored=stored.api_version,
            structurals=structurals,
            scales=scales,
            has_status=has_status,
            is_renamed=converter is None,
            further=self._further.get(document["metadata"]["name"]),
        )
        return _Read(key, rules, converter)


def _kind(
    document: Document, definition: CustomResourceDefinition, stored: Resource, read: _Read, *, is_terminating: bool
) -> Kind:
    spec, rules = document["spec"], read.rules
    verbs = DELETING_VERBS if is_terminating else ()
    selectable: dict[str, Any] = {}
    versions: list[ServedVersion] = []
    # Objects that were stored under another generation may lack defaults, or have what is no field any more.
    is_plain = len(definition.status.stored_versions) < 2 and definition.metadata.generation < 2
    for version in spec["versions"]:
        selectable |= {_label(each): _text_at(each["jsonPath"]) for each in version.get("selectableFields") or ()}
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        subresources = tuple(
            sorted(name for name in (version.get("subresources") or {}) if name in ("status", "scale"))
        )
        resource = replace(
            stored,
            version=version["name"],
            subresources=subresources,
            columns=columns_of(version.get("additionalPrinterColumns") or ()),
            selectable_fields=selectable,
            verbs=verbs,
            deprecated=_warning(version, stored),
        )
        structural = rules.structurals[resource.api_version]
        is_stored = resource.api_version == stored.api_version
        versions.append(
            ServedVersion(
                resource,
                stored.name,
                structural.shape,
                to_stored=None if is_plain and is_stored else _to(rules, read.converter, stored.api_version),
                from_stored=None if is_plain and is_stored else _to(rules, read.converter, resource.api_version),
                check=None if is_stored else rules.check,
                schema=partial(structural.openapi, resource),
                has_strategic_merge=False,
            )
        )
    kept = replace(
        stored,
        subresources=(*(("scale",) if rules.scale else ()), *(("status",) if rules.has_status else ())),
        selectable_fields=selectable,
    )
    strategy = strategy_of(rules, is_terminating=is_terminating)
    served = tuple(versions)
    conversions = [each for version in served for each in (version.to_stored, version.from_stored)]
    return Kind(
        kept,
        rules.structurals[stored.api_version].shape,
        lambda: strategy,
        lambda: served,
        asks=any(each is not None and each.rule is None for each in conversions),
    )


def _to(rules: Rules, converter: Converter | None, api_version: str) -> Conversion:
    """Return what makes stored or sent objects those of one version: with the defaults of the version they are in,
    converted, and without the fields that the version does not have."""
    if converter is None:
        return Conversion(
            lambda documents: [rules.prune(_with_api_version(rules, each, api_version)) for each in documents]
        )
    webhook = converter

    async def ask(documents: list[Document]) -> list[Document]:
        converted = await webhook([rules.read(each)[0] for each in documents], api_version)
        return [rules.prune(each) for each in converted]

    return Conversion(question=ask)


def _with_api_version(rules: Rules, document: Document, api_version: str) -> Document:
    return {**rules.read(document)[0], "apiVersion": api_version}


def _warning(version: Document, stored: Resource) -> str:
    if not version.get("deprecated"):
        return ""
    said = version.get("deprecationWarning")
    return str(said) if said else f"{stored.group}/{version['name']} {stored.kind} is deprecated"


def _label(field: Document) -> str:
    return str(field["jsonPath"]).removeprefix(".")


def _text_at(path: str) -> Callable[[Document], str]:
    def value_of(document: Document) -> str:
        found = jsonpath.find(path, document)
        if not found or found[0] is None:
            return ""
        return {True: "true", False: "false"}[found[0]] if isinstance(found[0], bool) else str(found[0])

    return value_of
