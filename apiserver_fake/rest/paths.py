"""Parsing of an HTTP method, path and query into the mesh's own `Request` or `WatchRequest`.

This is the path grammar of the Kubernetes API: core and named groups, namespaced or not, sub-resources, the old
`/watch/` prefix. Nothing here uses a socket; a refusal is an `ApiError` with the text of the real server.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

import msgspec

from apiserver_fake.registry.catalogue import Catalogue
from apiserver_fake.registry.decode import json_object
from apiserver_fake.registry.errors import invalid_option, method_not_allowed, no_such_path
from apiserver_fake.registry.history import HISTORY
from apiserver_fake.registry.served_version import ServedVersion
from apiserver_fake.registry.validation.formats import value_text
from apiserver_fake.rest.parameters import Parameters
from services.api.errors import BadRequest
from services.api.meta import Document, Resource
from services.api.metrics.apis import COMPUTED, CUSTOM, CUSTOM_METRICS, EXTERNAL, EXTERNAL_METRICS
from services.api.wire import Request, WatchRequest

WATCH_TIMEOUT_MAX_S = 1800.0
"""The longest `timeoutSeconds` that is honoured (L-WTO)."""


@dataclass(frozen=True)
class SubresourceForm:
    """The form of a subresource in discovery: group, version and kind of its body ("" = the parent's), verbs."""

    kind: str = ""
    group: str = ""
    version: str = ""
    verbs: tuple[str, ...] = ("get", "patch", "update")


SUBRESOURCES: dict[str, SubresourceForm] = {
    "attach": SubresourceForm("PodAttachOptions", "", "v1", ("create", "get")),
    "binding": SubresourceForm("Binding", "", "v1", ("create",)),
    "eviction": SubresourceForm("Eviction", "policy", "v1", ("create",)),
    "exec": SubresourceForm("PodExecOptions", "", "v1", ("create", "get")),
    "finalize": SubresourceForm(verbs=("update",)),
    HISTORY: SubresourceForm(verbs=("get",)),
    "log": SubresourceForm(verbs=("get",)),
    "portforward": SubresourceForm("PodPortForwardOptions", "", "v1", ("create", "get")),
    "proxy": SubresourceForm("ProxyOptions", "", "v1", ("create", "delete", "get", "patch", "update")),
    "token": SubresourceForm("TokenRequest", "authentication.k8s.io", "v1", ("create",)),
    "scale": SubresourceForm("Scale", "autoscaling", "v1"),
    "unbind": SubresourceForm("PodUnbind", "", "v1", ("create",)),
}


CONNECTED = ("attach", "exec", "portforward", "proxy")
"""Subresources that are no objects: a connection to a container, or its output."""


def subresource_form(name: str, kind: str = "") -> SubresourceForm:
    """Return the discovery form of a subresource; one without an entry is read and written like the object."""
    form = SUBRESOURCES.get(name) or SubresourceForm()
    return replace(form, kind=f"{kind}{form.kind}") if name == "proxy" else form


@dataclass(frozen=True)
class Route:
    """The target of a path of a served resource."""

    served: ServedVersion
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    is_watch: bool = False

    @property
    def resource(self) -> Resource:
        """The kind in the version that the path names."""
        return self.served.resource

    @property
    def is_of_definition(self) -> bool:
        """Whether a CustomResourceDefinition defines the kind."""
        return self.served.schema is not None

    @property
    def template(self) -> str:
        """The path with placeholders: the low-cardinality name for spans and metrics."""
        r = self.resource
        path = f"/apis/{r.group}/{r.version}" if r.group else f"/api/{r.version}"
        if self.namespace:
            path += "/namespaces/{namespace}"
        path += f"/{r.plural}"
        if self.name:
            path += "/{name}"
        return f"{path}/{self.subresource}" if self.subresource else path

    def request(self, verb: str, **others: Any) -> Request:
        """Return a call of that verb on the route's resource or object."""
        return Request(
            verb=verb,
            resource=self.served.stored,
            api_version=self.resource.api_version if self.served.from_stored is not None else "",
            namespace=self.namespace,
            name=self.name,
            subresource=self.subresource,
            **others,
        )


def split(raw_path: str) -> list[str]:
    """Return the decoded segments of a raw path; a trailing slash is ignored."""
    return [unquote(part) if "%" in part else part for part in raw_path.strip("/").split("/")]


_MALFORMED = re.compile(r"[^?]*%(?![0-9A-Fa-f]{2})")


def is_malformed(raw_path: str) -> bool:
    """Whether the path before the query has a percent sign that is not part of an escape."""
    return "%" in raw_path and _MALFORMED.match(raw_path) is not None


def parse(catalogue: Catalogue, group: str, version: str, rest: Sequence[str]) -> Route:
    """Return the route for the path segments after the group version. Raises: NotFound for an unserved resource
    or scope.
    """
    plurals = catalogue.served_versions.get((group, version), {})
    parts = list(rest)
    if group in (CUSTOM, EXTERNAL) and plurals:
        return _metric(next(iter(plurals.values())), parts)
    is_watch = parts[0] == "watch" and len(parts) > 1
    if is_watch:
        parts = parts[1:]
    namespace = ""
    # /namespaces/NS/pods is a collection, /namespaces/NS and /namespaces/NS/finalize are the namespace itself.
    if parts[0] == "namespaces" and len(parts) >= 3 and parts[2] in plurals:
        namespace, parts = parts[1], parts[2:]
        if not namespace or not plurals[parts[0]].resource.namespaced:
            raise no_such_path()
    elif parts[0] == "namespaces" and len(parts) >= 3 and group:
        raise no_such_path()
    served = plurals.get(parts[0])
    if served is None or len(parts) > 3 or any(not part for part in parts[1:]):
        raise no_such_path()
    resource = served.resource
    name = parts[1] if len(parts) > 1 else ""
    subresource = parts[2] if len(parts) > 2 else ""
    if name and resource.namespaced and not namespace:
        raise no_such_path()
    if subresource and (subresource not in (HISTORY, *resource.subresources) or is_watch):
        raise no_such_path()
    return Route(served, namespace, name, subresource, is_watch)


def _metric(served: ServedVersion, parts: list[str]) -> Route:
    """Return the route of a custom or external metric: `namespaces/NS/pods/*/METRIC`, `nodes/NAME/METRIC`,
    `namespaces/NS/METRIC`."""
    is_external, namespace = served.resource.group == EXTERNAL, ""
    if parts[0] == "namespaces" and len(parts) > 2 and (is_external or len(parts) > 3):
        namespace, parts = parts[1], parts[2:]
    wanted = (1,) if is_external else (2, 3) if namespace else (3,)
    if len(parts) not in wanted or not all(parts) or (len(parts) == 2 and parts[0] != "metrics"):
        raise no_such_path()
    if is_external and not namespace:
        raise no_such_path()
    return Route(served, namespace, "/".join(parts))


_ON_COLLECTION = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_ON_OBJECT = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_ON_SUBRESOURCE = {"GET": "get", "PUT": "update", "PATCH": "patch", "POST": "create"}


def verb_of(method: str, route: Route) -> str:
    """Return the verb. Raises: MethodNotAllowed."""
    if (method, route.resource.name, route.subresource) == ("DELETE", "pods", "binding"):
        verb = "delete"  # an unbind, where that is its form; refused otherwise
    elif route.subresource:
        verb = _ON_SUBRESOURCE.get(method, "")
        if verb not in subresource_form(route.subresource).verbs:
            raise method_not_allowed()
    else:
        verb = (_ON_OBJECT if route.name else _ON_COLLECTION).get(method, "")
        if verb in ("create", "deletecollection") and route.resource.namespaced and not route.namespace:
            verb = ""
        if route.resource.verbs and verb not in route.resource.verbs:
            verb = ""
    if not verb or (route.resource.name in COMPUTED and verb not in ("get", "list")):
        raise method_not_allowed()
    return verb


def is_watch(verb: str, route: Route, parameters: Parameters) -> bool:
    """Whether the request is a watch: of a collection by the query, or by the old path prefix."""
    asks = verb == "list" and parameters.flag("watch")
    wanted = verb in ("list", "get") and not route.subresource and (route.is_watch or asks)
    if wanted and route.resource.name in COMPUTED:
        raise method_not_allowed()
    return wanted


def watch_request(route: Route, parameters: Parameters, newest: int) -> WatchRequest:
    """Return the watch that is requested; `newest` is the version that is visible now.

    Raises: Invalid when initial events and version match contradict each other (W12).
    """
    if "at" in parameters:
        raise BadRequest(f"at={parameters.text('at')}: a watch has no past; name a resourceVersion to watch from")
    send_initial = parameters.flag("sendInitialEvents")
    match = parameters.text("resourceVersionMatch")
    bookmarks = parameters.flag("allowWatchBookmarks")
    version = parameters.text("resourceVersion")
    message = ""
    if "sendInitialEvents" in parameters and match != "NotOlderThan":
        message = "resourceVersionMatch is required to be NotOlderThan for sendInitialEvents"
    elif match and "sendInitialEvents" not in parameters:
        message = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
    if message:
        raise invalid_option("ListOptions", "resourceVersionMatch", "FieldValueForbidden", f"Forbidden: {message}")
    selector = parameters.text("fieldSelector")
    if route.name:
        by_name = f"metadata.name={route.name}"
        selector = f"{selector},{by_name}" if selector else by_name
    return WatchRequest(
        resource=route.served.stored,
        api_version=route.resource.api_version if route.served.from_stored is not None else "",
        namespace=route.namespace,
        label_selector=parameters.text("labelSelector"),
        field_selector=selector,
        # Who wants no initial events and names no version begins now.
        resource_version=version or ("" if send_initial or "sendInitialEvents" not in parameters else str(newest)),
        resource_version_match=match if send_initial else "",
        allow_bookmarks=bookmarks,
        send_initial_events=send_initial,
        timeout_s=min(float(parameters.number("timeoutSeconds") or 0), WATCH_TIMEOUT_MAX_S),
    )


_OPTIONS = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}


def is_dry_run(verb: str, values: Sequence[str]) -> bool:
    """Whether the request is a dry run. Raises: Invalid for a value other than `All`."""
    for value in values:
        if value != "All":
            message = f'Unsupported value: "{value[:80]}": supported values: "All"'
            raise invalid_option(_OPTIONS.get(verb, "DeleteOptions"), "dryRun", "FieldValueNotSupported", message)
    return bool(values)


MANAGER_BYTES_MAX = 128


def _manager(verb: str, name: str) -> str:
    """Return the name of a field manager. Raises: Invalid for one that is too long or cannot be printed.

    Source: upstream `staging/src/k8s.io/apimachinery/pkg/apis/meta/v1/validation/validation.go`.
    """
    kind = _OPTIONS.get(verb, "PatchOptions")
    if len(name.encode()) > MANAGER_BYTES_MAX:
        message = f"Too long: may not be more than {MANAGER_BYTES_MAX} bytes"
        raise invalid_option(kind, "fieldManager", "FieldValueTooLong", message)
    for place, sign in enumerate(name):
        if not sign.isprintable():
            at = len(name[:place].encode())
            message = f"Invalid value: {value_text(name)}: invalid character U+{ord(sign):04X} (at position {at})"
            raise invalid_option(kind, "fieldManager", "FieldValueInvalid", message)
    return name


FIELD_VALIDATIONS = ("Strict", "Warn", "Ignore")


def to_request(
    verb: str,
    route: Route,
    parameters: Parameters,
    *,
    body: bytes = b"",
    patch_type: str = "",
    traceparent: str = "",
    request_id: str = "",
    lease_epoch: str = "",
    default_manager: str = "",
) -> Request:
    """Return the call. Raises: BadRequest or Invalid for query parameters that do not fit the verb."""
    if verb == "get" and parameters.is_empty and not route.subresource:
        return route.request(verb, traceparent=traceparent)
    if verb in ("list", "get"):
        is_selective = verb == "list" or route.resource in (CUSTOM_METRICS, EXTERNAL_METRICS)
        fields = "metricLabelSelector" if route.resource is CUSTOM_METRICS else "fieldSelector"
        return route.request(
            verb,
            label_selector=parameters.text("labelSelector") if is_selective else "",
            field_selector=parameters.text(fields) if is_selective else "",
            resource_version=parameters.version(),
            resource_version_match=parameters.text("resourceVersionMatch"),
            limit=parameters.limit() if verb == "list" or route.subresource == HISTORY else 0,
            continue_token=parameters.text("continue") if verb == "list" else "",
            at=parameters.text("at"),
            is_split=verb == "list",
            traceparent=traceparent,
        )
    dry_run = is_dry_run(verb, [parameters.text("dryRun")] if "dryRun" in parameters else [])
    labels = fields = ""
    if verb in ("delete", "deletecollection") and not route.subresource:
        body, in_body = delete_options(body, parameters)
        dry_run = is_dry_run(verb, in_body) or dry_run
        if verb == "deletecollection":
            labels, fields = parameters.text("labelSelector"), parameters.text("fieldSelector")
    validation, options = "", _OPTIONS.get(verb, "DeleteOptions")
    if verb in _OPTIONS:
        validation = parameters.text("fieldValidation") or "Warn"
        if validation not in FIELD_VALIDATIONS:
            supported = ", ".join(f'"{each}"' for each in sorted(FIELD_VALIDATIONS))
            message = f'Unsupported value: "{validation[:32]}": supported values: {supported}'
            raise invalid_option(options, "fieldValidation", "FieldValueNotSupported", message)
    if verb == "patch" and patch_type != "apply" and "force" in parameters:
        message = "Forbidden: may not be specified for non-apply patch"
        raise invalid_option(options, "force", "FieldValueForbidden", message)
    return route.request(
        verb,
        body=body,
        patch_type=patch_type,
        field_manager=_manager(verb, parameters.text("fieldManager")) or default_manager,
        field_validation=validation,
        dry_run=dry_run,
        request_id=request_id,
        traceparent=traceparent,
        lease_epoch=lease_epoch,
        label_selector=labels,
        field_selector=fields,
        is_split=verb == "deletecollection",
    )


def delete_options(body: bytes, parameters: Parameters) -> tuple[bytes, list[str]]:
    """Return the DeleteOptions as JSON, completed by the query, and its `dryRun` values. Raises: BadRequest."""
    document: Document = {}
    if body.strip():
        malformed = "couldn't get version/kind; json parse error"
        document = json_object(body, malformed, "the body of a delete must be a DeleteOptions object")
    dry_run = document.pop("dryRun", None) or []
    if not isinstance(dry_run, list):
        raise BadRequest("deleteOptions.dryRun: want a list")
    grace = parameters.number("gracePeriodSeconds")
    if grace is not None:
        document.setdefault("gracePeriodSeconds", grace)
    if policy := parameters.text("propagationPolicy"):
        document.setdefault("propagationPolicy", policy)
    if "orphanDependents" in parameters:
        document.setdefault("orphanDependents", parameters.flag("orphanDependents"))
    return (msgspec.json.encode(document) if document else b""), [str(value) for value in dry_run]
