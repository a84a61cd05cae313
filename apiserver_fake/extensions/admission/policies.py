"""Compiled admission policies and their bindings: the part that validating and mutating policies share.
Pure.

A policy acts through bindings. Each binding may narrow it, and names its parameters. The policy is evaluated
once for each parameter. The binding says whether a missing parameter is an error or skips the evaluation. An
error in the policy's configuration is handled as its `failurePolicy` says.

Source: kubernetes/kubernetes
staging/src/k8s.io/apiserver/pkg/admission/plugin/policy/generic/policy_dispatcher.go, policy_source.go;
KEP-3488; KEP-3962.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from apiserver_fake.extensions.admission.expressions import (
    Compiled,
    Compiler,
    Condition,
    are_met,
    conditions_of,
    namespace_object,
)
from apiserver_fake.extensions.admission.matching import Match
from apiserver_fake.registry.admission.attributes import NAMESPACES, Attributes, Surroundings
from apiserver_fake.registry.catalogue import Catalogue
from apiserver_fake.registry.conversion import Conversion
from apiserver_fake.registry.schema.schemas import Shape
from apiserver_fake.registry.served_version import ServedVersion
from apiserver_fake.registry.sessions import Unanswered
from services.api.errors import ApiError
from services.api.meta import Document, Resource
from services.cel.libraries.authorization import authorizer_for, resource_check_for


class ConfigurationError(ValueError):
    """A policy or binding cannot be evaluated for a request; the text is upstream's."""


@dataclass(frozen=True)
class World:
    """The state that expressions may read besides the request: kinds, stored objects, and authorization."""

    catalogue: Catalogue
    around: Surroundings

    def versions(self, resource: Resource) -> Sequence[Resource]:
        """Return the versions in which a kind is served."""
        return [each.resource for each in self.catalogue.kind(resource.name).versions]

    def shape_in(self, found: Attributes, matched: Resource) -> Shape:
        """Return the type of a request's object in that version."""
        kind = found.kind_in(matched)
        return self.catalogue.shape_of(kind.api_version, kind.kind)

    def inputs(self, attributes: Attributes, matched: Resource, params: Document | None) -> dict[str, Any]:
        """Return the variables of expressions, with objects in the matched version. Raises: ConfigurationError."""
        namespace = attributes.namespace if attributes.resource.name != NAMESPACES else ""
        objects = [attributes.object, attributes.old]
        if matched is not attributes.resource:
            objects = [self.as_matched(attributes, each, matched) for each in objects]
        user = attributes.identity.user
        return {
            "object": objects[0],
            "oldObject": objects[1],
            "request": attributes.review(matched),
            "params": params,
            "namespaceObject": namespace_object(self.around.lookup(NAMESPACES, "", namespace) if namespace else None),
            "authorizer": authorizer_for(user, self.around.ask),
            "authorizer.requestResource": resource_check_for(
                user,
                self.around.ask,
                group=matched.group,
                resource=matched.plural,
                subresource=attributes.subresource,
                namespace=attributes.namespace,
                name=attributes.name,
            ),
        }

    def as_matched(self, found: Attributes, document: Document | None, matched: Resource) -> Document | None:
        """Return a stored object in the matched version. Raises: ConfigurationError, Unanswered."""
        served = self.served_version(found.resource, matched)
        if document is None or served is None or found.subresource not in ("", "status"):
            return document
        return self._convert(served.from_stored, document)

    def as_stored(self, found: Attributes, document: Document, matched: Resource) -> Document:
        """Return an object in the version it is stored in. Raises: ConfigurationError, Unanswered."""
        served = self.served_version(found.resource, matched)
        if served is None or found.subresource not in ("", "status"):
            return document
        return self._convert(served.to_stored, document)

    def _convert(self, conversion: Conversion | None, document: Document) -> Document:
        if conversion is None:
            return document
        try:
            return self.around.convert(conversion, [document])[0]
        except Unanswered:
            raise
        except ApiError as error:
            raise ConfigurationError(f"failed to convert object version: {error.message}") from None

    def served_version(self, resource: Resource, matched: Resource) -> ServedVersion | None:
        """Return the served version of the match; None if it is the version in which objects are stored."""
        versions = self.catalogue.kind(resource.name).versions
        return next((each for each in versions if each.resource is matched and each.from_stored is not None), None)


@dataclass(frozen=True)
class Binding:
    """One binding of a policy."""

    name: str
    match: Match | None
    params: Document | None
    actions: tuple[str, ...]


T = TypeVar("T")
_FIRST: Final = ("resourceRules", "excludeResourceRules")


@dataclass(frozen=True)
class Policy(Generic[T]):
    """A policy with its compiled expressions; `own`: the expressions of its kind (validating or mutating)."""

    name: str
    match: Match
    param_kind: Document | None
    ignores_errors: bool
    is_reinvoked: bool
    conditions: tuple[Condition, ...]
    variables: Mapping[str, tuple[str, Compiled]]
    own: T


@dataclass(frozen=True)
class Hook(Generic[T]):
    """A policy with its bindings, in the order of their names."""

    policy: Policy[T]
    bindings: tuple[Binding, ...]


@dataclass(frozen=True)
class Invocation(Generic[T]):
    """One evaluation of a policy. `error`: why it cannot be evaluated. `params`: the parameter object; None for
    none.
    """

    policy: Policy[T]
    binding: Binding | None
    matched: Resource
    params: Document | None = None
    error: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The identity of the evaluation, by which a reinvocation recognizes it."""
        meta = (self.params or {}).get("metadata") or {}
        binding = self.binding.name if self.binding is not None else ""
        return self.policy.name, binding, str(meta.get("namespace", "")), str(meta.get("name", ""))


def compile_policy(document: Document, own: Callable[[Document, Compiler], T]) -> Policy[T]:
    """Return a stored policy with its expressions compiled."""
    spec = document.get("spec") or {}
    param_kind = spec.get("paramKind")
    compiler = Compiler(has_params=param_kind is not None)
    for variable in spec.get("variables") or ():
        compiler.variable(variable["name"], variable["expression"])
    first, excluded = _FIRST
    return Policy(
        name=document["metadata"]["name"],
        match=Match.of(spec.get("matchConstraints") or {}, first, excluded=excluded),
        param_kind=param_kind,
        ignores_errors=spec.get("failurePolicy") == "Ignore",
        is_reinvoked=spec.get("reinvocationPolicy") == "IfNeeded",
        conditions=conditions_of(spec, Compiler(has_params=param_kind is not None)),
        variables=compiler.variables,
        own=own(spec, compiler),
    )


def binding_of(document: Document) -> Binding:
    """Return a stored binding."""
    spec = document.get("spec") or {}
    resources = spec.get("matchResources")
    first, excluded = _FIRST
    return Binding(
        name=document["metadata"]["name"],
        match=None if resources is None else Match.of(resources, first, excluded=excluded, are_optional=True),
        params=spec.get("paramRef"),
        actions=tuple(spec.get("validationActions") or ()),
    )


def invocations(hooks: Iterable[Hook[T]], attributes: Attributes, world: World) -> Iterator[Invocation[T]]:
    """Yield the evaluations that a request needs, before match conditions are evaluated."""
    versions = world.versions(attributes.resource)
    for hook in hooks:
        policy = hook.policy
        matched = policy.match.matches(attributes, versions, world.around.labels)
        if matched is None:
            continue
        kind: Resource | None = None
        if policy.param_kind is not None:
            kind = _resource_of(policy.param_kind, world.catalogue)
            if kind is None:
                why = f"failed to find resource referenced by paramKind: '{kind_text(policy.param_kind)}'"
                yield Invocation(policy, None, matched, error=f"failed to configure policy: {why}")
                continue
        for binding in hook.bindings:
            if binding.match is not None and binding.match.matches(attributes, versions, world.around.labels) is None:
                continue
            try:
                for param in _params(binding.params, kind, attributes.namespace, world):
                    yield Invocation(policy, binding, matched, param)
            except ConfigurationError as error:
                yield Invocation(policy, binding, matched, error=f"failed to configure binding: {error}")


def conditions_met(policy: Policy[Any], inputs: Mapping[str, Any]) -> bool:
    """Whether a policy's match conditions are met. Raises: ExpressionError unless the policy ignores errors."""
    try:
        return are_met(policy.conditions, inputs)
    except ValueError:
        if policy.ignores_errors:
            return False
        raise


def kind_text(kind: Document) -> str:
    """Return a kind as upstream writes it: `apps/v1, Kind=Deployment`."""
    group, _, version = str(kind.get("apiVersion", "")).rpartition("/")
    return f"{group}/{version}, Kind={kind.get('kind', '')}"


def _resource_of(kind: Document, catalogue: Catalogue) -> Resource | None:
    group, _, version = str(kind.get("apiVersion", "")).rpartition("/")
    for served in catalogue.served_versions.get((group, version), {}).values():
        if served.resource.kind == kind.get("kind"):
            return catalogue.find(served.stored)
    return None


def _params(ref: Document | None, kind: Resource | None, namespace: str, world: World) -> list[Document | None]:
    """Return the parameters of one binding: [None] when it has none. Raises: ConfigurationError."""
    if kind is None or ref is None:
        return [None]
    where = ""
    if kind.namespaced:
        where = ref.get("namespace") or namespace
        if not where:
            why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
            raise ConfigurationError(why)
    elif ref.get("namespace"):
        raise ConfigurationError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
    params: list[Document | None] = []
    if name := ref.get("name"):
        one = world.around.lookup(kind.name, where, name)
        params = [] if one is None else [one]
    else:
        selected = Match.of({"objectSelector": ref.get("selector") or {}}, "rules").objects
        for document in world.around.list(kind.name, where):
            if selected is None or selected.matches((document.get("metadata") or {}).get("labels") or {}):
                params.append(document)
    if not params and ref.get("parameterNotFoundAction") == "Deny":
        raise ConfigurationError("no params found for policy binding with `Deny` parameterNotFoundAction")
    return params


def refusal(found: Attributes, text: str, reason: str, code: int, causes: list[Document]) -> ApiError:
    """Return an error with upstream's `NewForbidden` text, but with another reason and code."""
    resource = found.requested
    details: Document = {"name": found.name, "kind": resource.plural, "causes": causes}
    if resource.group:
        details["group"] = resource.group
    return ApiError(f'{resource.name} "{found.name}" is forbidden: {text}', reason=reason, code=code, details=details)
