"""Matching of requests with webhooks and admission policies: rules and selectors. Pure.

A rule names operations, groups, versions and resources (`pods`, `pods/log`, `pods/*`, `*/scale`, `*`, `*/*`).
With match policy Equivalent a rule that names another served version of a kind matches, too, and objects are
passed in that version. Webhooks and policies never match the kinds that configure admission.

Source: kubernetes/kubernetes staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/predicates,
staging/src/k8s.io/apiserver/pkg/admission/plugin/policy/matching/matching.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from apiserver_fake.registry.admission.attributes import CONNECT, CREATE, NAMESPACES, UPDATE, Attributes, Labels
from services.api.meta import Document, LabelSelector, Resource
from services.api.selectors import Selector, from_label_selector


@dataclass(frozen=True)
class Rule:
    """Operations on resources. `names`: names of the objects that match; () for all."""

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]
    scope: str = "*"
    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, document: Document) -> Rule:
        """Read a RuleWithOperations or a NamedRuleWithOperations."""

        def among(name: str) -> frozenset[str]:
            return frozenset(document.get(name) or ())

        resources = tuple((r, below) for r, _, below in (e.partition("/") for e in document.get("resources") or ()))
        scope = document.get("scope") or "*"
        names = among("resourceNames")
        return cls(among("operations"), among("apiGroups"), among("apiVersions"), resources, scope, names)

    def covers(self, operation: str, resource: Resource, subresource: str) -> bool:
        """Whether the rule covers that operation on that version of a resource."""
        return (
            (operation in self.operations or "*" in self.operations)
            and (resource.group in self.groups or "*" in self.groups)
            and (resource.version in self.versions or "*" in self.versions)
            and any(name in ("*", resource.plural) and below in ("*", subresource) for name, below in self.resources)
            and self._is_in_scope(resource)
        )

    def _is_in_scope(self, resource: Resource) -> bool:
        return self.scope == "*" or (self.scope == "Namespaced") is resource.namespaced


@dataclass(frozen=True)
class Match:
    """The match criteria of a webhook, a policy or a binding.

    `rules` None: every request matches, which is the meaning of a binding without rules.
    """

    rules: tuple[Rule, ...] | None
    excluded: tuple[Rule, ...] = ()
    is_exact: bool = False
    namespaces: Selector | None = None
    objects: Selector | None = None

    @classmethod
    def of(cls, document: Document, rules: str, *, excluded: str = "", are_optional: bool = False) -> Match:
        """Read a webhook or MatchResources; `rules`, `excluded`: names of the fields that hold the lists of rules."""
        match_rules = tuple(Rule.of(each) for each in document.get(rules) or ())
        return cls(
            rules=None if are_optional and not match_rules else match_rules,
            excluded=tuple(Rule.of(each) for each in document.get(excluded) or ()),
            is_exact=document.get("matchPolicy") == "Exact",
            namespaces=_selector(document.get("namespaceSelector")),
            objects=_selector(document.get("objectSelector")),
        )

    def covering(
        self, operation: str, requested: Resource, subresource: str, versions: Sequence[Resource]
    ) -> Resource | None:
        """Return the version in which a rule covers the operation. The object's names, labels and namespace are
        checked by `matches`.
        """
        return _covering(self.rules, self.is_exact, operation, requested, subresource, versions)

    def matches(self, attributes: Attributes, versions: Sequence[Resource], labels: Labels) -> Resource | None:
        """Return the version in which the request matches; None if it does not. `labels`: returns a namespace's
        labels.
        """
        if not self._selects_namespace(attributes, labels) or not self._selects_object(attributes):
            return None
        excluded = self._among(self.excluded, attributes, versions) if self.excluded else None
        if excluded is not None:
            return None
        return attributes.requested if self.rules is None else self._among(self.rules, attributes, versions)

    def _among(self, rules: Iterable[Rule], found: Attributes, versions: Sequence[Resource]) -> Resource | None:
        named = tuple(rule for rule in rules if not rule.names or found.name in rule.names)
        return _covering(named, self.is_exact, found.operation, found.requested, found.subresource, versions)

    def _selects_namespace(self, attributes: Attributes, labels: Labels) -> bool:
        if self.namespaces is None:
            return True
        if (
            attributes.resource.name == NAMESPACES
            and attributes.operation in (CREATE, UPDATE)
            and attributes.object is not None
        ):
            return self.namespaces.matches(_labels(attributes.object))
        if not attributes.namespace:
            return True  # of no namespace, and so excluded by none
        return self.namespaces.matches(labels(attributes.namespace))

    def _selects_object(self, found: Attributes) -> bool:
        if self.objects is None:
            return True
        if found.operation == CONNECT:
            return False  # options have no labels, not even none
        return any(self.objects.matches(_labels(each)) for each in (found.object, found.old) if each is not None)


def _labels(document: Document) -> Mapping[str, str]:
    return (document.get("metadata") or {}).get("labels") or {}


def _selector(document: Document | None) -> Selector | None:
    """Return a label selector; None for one that selects everything."""
    return from_label_selector(msgspec.convert(document, LabelSelector)) if document else None


def _covering(
    rules: Iterable[Rule] | None,
    is_exact: bool,
    operation: str,
    requested: Resource,
    subresource: str,
    versions: Sequence[Resource],
) -> Resource | None:
    if rules is None:
        return requested
    rules = tuple(rules)
    if any(rule.covers(operation, requested, subresource) for rule in rules):
        return requested
    if is_exact:
        return None
    for version in versions:
        if version is not requested and any(rule.covers(operation, version, subresource) for rule in rules):
            return version
    return None
