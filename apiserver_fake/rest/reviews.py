"""Kinds that are asked and never stored: who am I, may I, what may I.

kubectl sends its questions as protobuf; those that need no answer from the body are answered whatever the
body is.
"""

from __future__ import annotations

from collections.abc import Callable

from apiserver_fake.rest.discovery import REVIEWS, Review
from services.api.errors import ApiError, BadRequest
from services.api.identity import Identity
from services.api.meta import Document
from services.api.resources import resources
from services.api.wire import Request

Allows = Callable[[Identity, Request], str]
"""`(identity, request) -> "" when allowed, else why not`."""


def review_at(group: str, version: str, rest: list[str]) -> Review | None:
    """Return the review served at these path segments."""
    if len(rest) != 1:
        return None
    for review in REVIEWS:
        if (review.group, review.version, review.plural) == (group, version, rest[0]):
            return review
    return None


def needs_body(review: Review) -> bool:
    """Whether the answer depends on what was sent."""
    return review.kind != "SelfSubjectReview"


def answer(review: Review, body: Document, identity: Identity, allows: Allows) -> Document:
    """Return the review with its status filled in. Raises: BadRequest for attributes of a wrong shape."""
    spec = body.get("spec") or {}
    if not isinstance(spec, dict):
        raise BadRequest(f"{review.kind}.spec: want an object")
    match review.kind:
        case "SelfSubjectReview":
            status: Document = {"userInfo": {"username": identity.user, "groups": list(identity.groups)}}
        case "SelfSubjectAccessReview":
            status = _access(spec, identity, allows)
        case _:
            status = _rules(str(spec.get("namespace") or "default"), identity, allows)
    return {
        "kind": review.kind,
        "apiVersion": f"{review.group}/{review.version}",
        "metadata": {"creationTimestamp": None},
        **({"spec": spec} if review.kind != "SelfSubjectReview" else {}),
        "status": status,
    }


def _access(spec: Document, identity: Identity, allows: Allows) -> Document:
    wanted = spec.get("resourceAttributes")
    if not isinstance(wanted, dict):
        path = (spec.get("nonResourceAttributes") or {}).get("path", "")
        return {"allowed": False, "reason": f"no rule lets {identity.user} call the path {path!r}"}
    plural, group = str(wanted.get("resource") or ""), str(wanted.get("group") or "")
    name = f"{plural}.{group}" if group and group != "*" else plural
    if name not in resources() and plural != "*":
        return {"allowed": False, "reason": f"no resource is called {name!r} here"}
    reason = allows(
        identity,
        Request(
            verb=str(wanted.get("verb") or ""),
            resource=name,
            namespace=str(wanted.get("namespace") or ""),
            name=str(wanted.get("name") or ""),
            subresource=str(wanted.get("subresource") or ""),
        ),
    )
    return {"allowed": not reason, **({"reason": reason} if reason else {})}


_ASKED = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")


def _rules(namespace: str, identity: Identity, allows: Allows) -> Document:
    """Return what is allowed in a namespace, found out by asking every verb of every resource."""
    rules: list[Document] = []
    for resource in resources().values():
        asked = namespace if resource.namespaced else ""
        verbs = [v for v in _ASKED if not allows(identity, Request(verb=v, resource=resource.name, namespace=asked))]
        if verbs:
            rules.append({"verbs": verbs, "apiGroups": [resource.group], "resources": [resource.plural]})
    open_paths = ["/healthz", "/livez", "/readyz", "/version"]
    return {
        "resourceRules": rules,
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": open_paths}],
        "incomplete": False,
    }


def allows_from(authorize: Callable[[Identity, Request], None]) -> Allows:
    """Return the yes-or-why-not form of a check that raises."""

    def allows(identity: Identity, request: Request) -> str:
        try:
            authorize(identity, request)
        except ApiError as error:
            return error.message
        return ""

    return allows
