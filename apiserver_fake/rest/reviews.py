"""Kinds that are asked and never stored: who am I, may I, what may I.

kubectl sends its questions as protobuf; those that need no answer from the body are answered whatever the body is.
"""

from collections.abc import Callable

from apiserver_fake.catalogue import Catalogue
from services.api.errors import ApiError, BadRequest
from services.api.identity import Identity
from services.api.meta import Document, Resource
from services.api.wire import Request

Authorize = Callable[[Identity, Request], None]
"""Raises Forbidden for what the identity may not do."""


def answer(
    review: Resource, body: Document, identity: Identity, authorize: Authorize, catalogue: Catalogue
) -> Document:
    """Return the review with its status filled in. Raises: BadRequest for attributes of a wrong shape."""
    spec = body.get("spec") or {}
    if not isinstance(spec, dict):
        raise BadRequest(f"{review.kind}.spec: want an object")
    match review.kind:
        case "SelfSubjectReview":
            status: Document = {"userInfo": {"username": identity.user, "groups": list(identity.groups)}}
        case "SelfSubjectAccessReview":
            status = _access(spec, identity, authorize, catalogue)
        case _:
            status = _rules(str(spec.get("namespace") or "default"), identity, authorize, catalogue)
    return {
        "kind": review.kind,
        "apiVersion": f"{review.group}/{review.version}",
        "metadata": {"creationTimestamp": None},
        **({"spec": spec} if review.kind != "SelfSubjectReview" else {}),
        "status": status,
    }


def _access(spec: Document, identity: Identity, authorize: Authorize, catalogue: Catalogue) -> Document:
    wanted = spec.get("resourceAttributes")
    if not isinstance(wanted, dict):
        path = (spec.get("nonResourceAttributes") or {}).get("path", "")
        return {"allowed": False, "reason": f"no rule lets {identity.user} call the path {path!r}"}
    plural, group = str(wanted.get("resource") or ""), str(wanted.get("group") or "")
    name = f"{plural}.{group}" if group and group != "*" else plural
    if name not in catalogue.resources and plural != "*":
        return {"allowed": False, "reason": f"no resource is called {name!r} here"}
    reason = _why_not(
        authorize,
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


def _rules(namespace: str, identity: Identity, authorize: Authorize, catalogue: Catalogue) -> Document:
    """Return what is allowed in a namespace, found out by asking every verb of every resource."""
    rules: list[Document] = []
    for resource in catalogue.resources.values():
        asked = namespace if resource.namespaced else ""
        requests = [Request(verb=verb, resource=resource.name, namespace=asked) for verb in _ASKED]
        verbs = [each.verb for each in requests if not _why_not(authorize, identity, each)]
        if verbs:
            rules.append({"verbs": verbs, "apiGroups": [resource.group], "resources": [resource.plural]})
    open_paths = ["/healthz", "/livez", "/readyz", "/version"]
    return {
        "resourceRules": rules,
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": open_paths}],
        "incomplete": False,
    }


def _why_not(authorize: Authorize, identity: Identity, request: Request) -> str:
    """Return "" for what is allowed."""
    try:
        authorize(identity, request)
    except ApiError as error:
        return error.message
    return ""
