"""Errors of requests for objects of any kind, with Kubernetes' texts: unknown kind, wrong scope, missing, conflict."""

from typing import Any

from services.api.errors import ApiError, BadRequest, Conflict, Forbidden, Invalid, MethodNotAllowed, NotFound, invalid
from services.api.meta import Resource
from services.api.wire import Request

MODIFIED_TEXT = "the object has been modified; please apply your changes to the latest version and try again"
RECREATED_TEXT = "The object might have been deleted and then recreated"


def no_such_path() -> NotFound:
    """Return the 404 for an unknown path."""
    return NotFound("the server could not find the requested resource")


def method_not_allowed() -> MethodNotAllowed:
    """Return the 405 for a verb that a resource does not have."""
    return MethodNotAllowed("the server does not allow this method on the requested resource")


def not_found(resource: Resource, name: str, *, subresource: str = "") -> NotFound:
    """Return Kubernetes' 404 for an object; `subresource`: named in the text as well."""
    details = details_of(resource, name)
    if subresource:
        details["kind"] += f"/{subresource}"
    text = details["kind"] + (f".{resource.group}" if resource.group else "")
    return NotFound(f'{text} "{name}" not found', details=details)


def details_of(resource: Resource, name: str) -> dict[str, Any]:
    """Return the details of a Status about an object."""
    group = {"group": resource.group} if resource.group else {}
    return {"name": name, **group, "kind": resource.plural}


def forbidden(resource: str, name: str, why: str, *, reason: str = "") -> Forbidden:
    """Return Kubernetes' 403 for an object of that resource."""
    plural, _, group = resource.partition(".")
    details = {"name": name, **({"group": group} if group else {}), "kind": plural}
    return Forbidden(f'{resource} "{name}" is forbidden: {why}', details=details, reason=reason)


def qualified_kind(document: dict[str, Any]) -> str:
    """Return a document's kind with its group, as refusals name it: `Pod`, `ReplicaSet.apps`."""
    group, _, _ = str(document.get("apiVersion") or "").rpartition("/")
    kind = str(document.get("kind") or "")
    return f"{kind}.{group}" if group else kind


SCHEME = "pkg/api/legacyscheme/scheme.go:30"
"""Name of upstream's scheme in its refusals."""
_INTERNAL = {"": "core", "events.k8s.io": "core", "rbac.authorization.k8s.io": "rbac"}


def wrong_type(resource: Resource, api_version: str, kind: str, *, is_served: bool, is_defined: bool) -> ApiError:
    """Return the refusal of a body whose type is not that of its path.

    `is_served`: the server serves the body's type. `is_defined`: a CustomResourceDefinition defines the path's
    kind.
    """
    version = api_version.rpartition("/")[2]
    if kind == resource.kind and (is_served or is_defined):
        text = f"the API version in the data ({api_version}) does not match the expected API version"
        return BadRequest(f"{text} ({resource.api_version})")
    if is_defined:
        return invalid(kind, "", [("kind", "FieldValueInvalid", f'Invalid value: "{kind}": must be {resource.kind}')])
    why = f'no kind "{kind}" is registered for version "{api_version}" in scheme "{SCHEME}"'
    if is_served:
        package = _INTERNAL.get(resource.group, resource.group.partition(".")[0])
        why = f"converting ({version}.{kind}) to ({package}.{resource.kind}): unknown conversion"
    return BadRequest(f'{kind} in version "{version}" cannot be handled as a {resource.kind}: {why}')


def conflict(resource: Resource, name: str, why: str) -> Conflict:
    """Return Kubernetes' 409 for a write that conflicts with the stored object."""
    return Conflict(
        f'Operation cannot be fulfilled on {resource.name} "{name}": {why}', details=details_of(resource, name)
    )


def check_scope(resource: Resource, request: Request) -> None:
    """Check that the request has a namespace if and only if the resource is namespaced, and a name where one is
    needed.

    Raises: BadRequest.
    """
    if resource.namespaced and not request.namespace and request.verb != "list":
        raise BadRequest(f"{resource.plural} are namespaced: a namespace is required")
    if not resource.namespaced and request.namespace:
        raise BadRequest(f"{resource.plural} are not namespaced: namespace {request.namespace!r} does not apply")
    if not request.name and request.verb in ("get", "update", "patch", "delete"):
        raise BadRequest(f"{request.verb} {resource.plural}: a name is required")


def unprocessable(detail: str) -> Invalid:
    """Return the 422 for a patch that cannot be applied; `detail` becomes its cause."""
    return Invalid(
        "the server rejected our request due to an error in our request",
        details={"causes": [{"reason": "FieldValueInvalid", "field": "patch", "message": detail}]},
    )


def type_name(value: Any) -> str:
    """Return JSON's name of the value's type, with an article."""
    names = {type(None): "null", bool: "a boolean", dict: "an object", list: "a list", str: "a string"}
    return names.get(type(value), "a number")


def invalid_option(kind: str, field: str, reason: str, message: str) -> Invalid:
    """Return the refusal of an invalid query parameter of that kind of options."""
    return Invalid(
        f'{kind}.meta.k8s.io "" is invalid: {field}: {message}',
        details={
            "group": "meta.k8s.io",
            "kind": kind,
            "causes": [{"reason": reason, "message": message, "field": field}],
        },
    )
