"""Review kinds, which are answered and never stored: token, subject, access and rules reviews.

kubectl sends reviews as protobuf. The caller must be allowed to `create` the review, as with any object.
Source: upstream `pkg/registry/authorization`, `pkg/registry/authentication`.
"""

from typing import Protocol

from apiserver_fake.registry.accounts import Rejected
from apiserver_fake.registry.catalogue import Catalogue
from apiserver_fake.registry.policy import Attributes, PolicyRule
from apiserver_fake.registry.schema.schemas import conform, shape_of
from apiserver_fake.registry.validation.formats import Causes
from apiserver_fake.registry.validation.formats import invalid as invalid_value
from services.api.errors import ApiError, BadRequest, invalid
from services.api.identity import Identity, external
from services.api.meta import Document, Resource
from services.api.wire import Request

REVIEWS = tuple(
    Resource(kind=kind, group=group, namespaced=kind == "LocalSubjectAccessReview")
    for group, kind in (
        ("authentication.k8s.io", "SelfSubjectReview"),
        ("authentication.k8s.io", "TokenReview"),
        ("authorization.k8s.io", "LocalSubjectAccessReview"),
        ("authorization.k8s.io", "SelfSubjectAccessReview"),
        ("authorization.k8s.io", "SelfSubjectRulesReview"),
        ("authorization.k8s.io", "SubjectAccessReview"),
    )
)
"""Review kinds, which are never stored."""
_GROUPS = frozenset(review.group for review in REVIEWS)
OF_ONESELF = frozenset(("SelfSubjectReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview"))


class Reviewer(Protocol):
    """What a server can say of identities; `Callers` is one."""

    def authorize(self, identity: Identity, request: Request) -> str:
        """Return the reason why the request is allowed. Raises: Forbidden."""
        ...

    def authorize_action(self, identity: Identity, asked: Attributes) -> str:
        """Return the reason why the action is allowed. Raises: Forbidden."""
        ...

    def rules_for(self, identity: Identity, namespace: str) -> tuple[list[PolicyRule], list[str]] | None:
        """Return the rules of an identity in a namespace; None where there are no RBAC objects."""
        ...

    def review_token(self, bearer: str, audiences: list[str]) -> tuple[Identity, tuple[str, ...]] | None:
        """Return the identity and the audiences of a token; None if it is unknown. Raises: Rejected."""
        ...


def review_at(group: str, version: str, rest: list[str]) -> tuple[Resource, str] | None:
    """Return the review kind of a path, and its namespace; None if the path is no review."""
    namespace = ""
    if group not in _GROUPS:
        return None
    if len(rest) == 3 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    for review in REVIEWS:
        if [review.group, review.version, review.plural] == [group, version, *rest]:
            return (review, namespace) if review.namespaced == bool(namespace) else None
    return None


def answer(
    review: Resource, namespace: str, body: Document, identity: Identity, reviewer: Reviewer, catalogue: Catalogue
) -> Document:
    """Return the review with its status filled in. Raises: BadRequest, Invalid for a malformed review."""
    body = conform(shape_of(review.api_version, review.kind), review.api_version, review.kind, body)
    spec: Document = body.get("spec") or {}
    match review.kind:
        case "SelfSubjectReview":
            status: Document = {"userInfo": identity.user_info}
        case "TokenReview":
            status = _token(spec, reviewer)
        case "SelfSubjectRulesReview":
            status = _rules(spec, identity, reviewer, catalogue)
        case "SelfSubjectAccessReview":
            _check(review, namespace, body, spec)
            status = _access(spec, identity, reviewer)
        case _:
            _check(review, namespace, body, spec)
            status = _access(spec, _subject(spec), reviewer)
    metadata = {"namespace": namespace} if namespace else {}
    return {
        "kind": review.kind,
        "apiVersion": f"{review.group}/{review.version}",
        "metadata": metadata,
        **({"spec": spec} if review.kind != "SelfSubjectReview" else {}),
        "status": status,
    }


def _token(spec: Document, reviewer: Reviewer) -> Document:
    bearer = spec.get("token") or ""
    if not bearer:
        raise BadRequest("token is required for TokenReview in authentication")
    try:
        token_review = reviewer.review_token(bearer, spec.get("audiences") or [])
    except Rejected as error:
        return {"user": {}, "error": str(error)}
    if token_review is None:
        return {"user": {}}
    identity, meant = external(token_review[0]), token_review[1]
    return {"authenticated": True, "user": identity.user_info, **({"audiences": list(meant)} if meant else {})}


def _check(review: Resource, namespace: str, body: Document, spec: Document) -> None:
    """Raise Invalid naming all that a question about rights may not be; BadRequest for another namespace's.

    The kind is not in the text, as upstream's conversion drops it.
    Source: upstream `pkg/apis/authorization/validation/validation.go`.
    """
    metadata: Document = {name: value for name, value in (body.get("metadata") or {}).items() if value}
    if review.namespaced and metadata.pop("namespace", namespace) != namespace:
        raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")
    if causes := list(_causes(review, namespace, metadata, spec)):
        raise invalid(f".{review.group}", "", causes)


def _causes(review: Resource, namespace: str, metadata: Document, spec: Document) -> Causes:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    shown = None if path is None else {"Path": path.get("path") or "", "Verb": path.get("verb") or ""}
    if resource is not None and path is not None:
        yield invalid_value(
            "spec.nonResourceAttributes", shown, "cannot be specified in combination with resourceAttributes"
        )
    if resource is None and path is None:
        text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        yield invalid_value("spec.resourceAttributes", None, text)
    if review.kind not in OF_ONESELF and not spec.get("user") and not spec.get("groups"):
        yield invalid_value("spec.user", "", "at least one of user or group must be specified")
    if metadata.keys() - {"managedFields"}:
        exception = " except for namespace" if review.namespaced else ""
        yield invalid_value("metadata", metadata, f"must be empty{exception}")
    if (
        review.namespaced
        and resource is not None
        and (requested_namespace := resource.get("namespace") or "") != namespace
    ):
        yield invalid_value("spec.resourceAttributes.namespace", requested_namespace, "must match metadata.namespace")
    if review.namespaced and path is not None:
        yield invalid_value("spec.nonResourceAttributes", shown, "disallowed on this kind of request")


def _subject(spec: Document) -> Identity:
    user, groups = spec.get("user") or "", spec.get("groups") or []
    extra: dict[str, list[str]] = spec.get("extra") or {}
    named = tuple(sorted((key.lower(), tuple(values)) for key, values in extra.items()))
    # Asked about, and so a client: the group marks it as one, whatever groups the question names.
    return Identity(user, tuple(groups), uid=spec.get("uid") or "", extra=named, is_asked_about=True)


def _access(spec: Document, identity: Identity, reviewer: Reviewer) -> Document:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    try:
        if path is not None:
            asked = Attributes(path.get("verb") or "", path=path.get("path") or "")
            reason = reviewer.authorize_action(identity, asked)
        else:
            reason = _resource_access(resource or {}, identity, reviewer)
    except ApiError as error:
        _, _, why = error.message.partition("RBAC: ")
        return {"allowed": False, **({"reason": f"RBAC: {why}"} if why else {})}
    return {"allowed": True, **({"reason": reason} if reason else {})}


def _resource_access(wanted: Document, identity: Identity, reviewer: Reviewer) -> str:
    plural, group = wanted.get("resource") or "", wanted.get("group") or ""
    request = Request(
        verb=wanted.get("verb") or "",
        resource=f"{plural}.{group}" if group else plural,
        namespace=wanted.get("namespace") or "",
        name=wanted.get("name") or "",
        subresource=wanted.get("subresource") or "",
    )
    return reviewer.authorize(identity, request)


_ASKED = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")


def _rules(spec: Document, identity: Identity, reviewer: Reviewer, catalogue: Catalogue) -> Document:
    """Return what is allowed in a namespace: the rules of RBAC objects, and what the mesh's own roles allow, found out
    by asking every verb of every resource."""
    namespace = spec.get("namespace") or ""
    if not namespace:
        raise BadRequest("no namespace on request")
    rules_and_errors = reviewer.rules_for(identity, namespace)
    if rules_and_errors is None:
        open_paths = [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version"]}]
        asked = _asked_rules(namespace, identity, reviewer, catalogue)
        return {"resourceRules": asked, "nonResourceRules": open_paths, "incomplete": False}
    rules, errors = rules_and_errors
    resources = [
        {
            "verbs": list(rule.verbs),
            "apiGroups": list(rule.api_groups),
            "resources": list(rule.resources),
            **({"resourceNames": list(rule.resource_names)} if rule.resource_names else {}),
        }
        for rule in rules
        if rule.resources
    ]
    paths = [
        {"verbs": list(rule.verbs), "nonResourceURLs": list(rule.non_resource_urls)}
        for rule in rules
        if rule.non_resource_urls
    ]
    status = {"resourceRules": resources, "nonResourceRules": paths, "incomplete": bool(errors)}
    if identity.node:
        errors = [*errors, "node authorizer does not support user rule resolution"]
        status["incomplete"] = True
    return {**status, **({"evaluationError": "; ".join(errors)} if errors else {})}


def _asked_rules(namespace: str, identity: Identity, reviewer: Reviewer, catalogue: Catalogue) -> list[Document]:
    rules: list[Document] = []
    for resource in catalogue.resources.values():
        asked = namespace if resource.namespaced else ""
        requests = [Request(verb=verb, resource=resource.name, namespace=asked) for verb in _ASKED]
        verbs = [each.verb for each in requests if _is_allowed(reviewer, identity, each)]
        if verbs:
            rules.append({"verbs": verbs, "apiGroups": [resource.group], "resources": [resource.plural]})
    return rules


def _is_allowed(reviewer: Reviewer, identity: Identity, request: Request) -> bool:
    try:
        reviewer.authorize(identity, request)
    except ApiError:
        return False
    return True
