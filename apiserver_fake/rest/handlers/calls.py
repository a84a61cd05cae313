"""Calls of resources: turns an HTTP request and its body into a `Request`, and makes the call."""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from apiserver_fake.registry.admission.service_account import is_without_default_account
from apiserver_fake.registry.errors import invalid_option
from apiserver_fake.rest import media_types, paths
from apiserver_fake.rest.http import is_traceparent, json_from, read_body, trail_of
from apiserver_fake.rest.parameters import Parameters
from apiserver_fake.rest.paths import Route
from services.api.seams import Clock, Span, Tracer
from services.api.times import format_time
from services.api.wire import Api, Request, Response
from services.telemetry.calls import serving

_NAMED = (
    "cronjobs.batch daemonsets.apps deployments.apps jobs.batch namespaces nodes"
    " persistentvolumeclaims persistentvolumes pods replicasets.apps replicationcontrollers"
    " resourcequotas services statefulsets.apps"
)
_NAMES_OF = {name: f"k8s.{name.partition('.')[0].removesuffix('s')}.name" for name in _NAMED.split()}
"""OpenTelemetry's attribute for an object's name, by resource."""
ACCOUNT_TRIES, ACCOUNT_WAIT_S = 10, 0.15
"""Retries of a pod creation that only lacks its namespace's default account: number, and wait in seconds."""


class Calls:
    """Makes the calls of one listener. `is_admitting`: a pod's service account must exist."""

    def __init__(self, clock: Clock, tracer: Tracer, *, is_admitting: bool) -> None:
        self._clock, self._tracer, self._is_admitting = clock, tracer, is_admitting

    def span(self, request: web.BaseRequest, route: Route, verb: str) -> Span:
        """Begin the span of a call, as a child of the caller's span if the request names one."""
        parent, template = request.headers.get("traceparent", ""), route.template
        attributes: dict[str, str] = {"http.request.method": request.method, "http.route": template}
        if route.namespace:
            attributes["k8s.namespace.name"] = route.namespace
        if route.name:
            attributes[_NAMES_OF.get(route.resource.name, "keplab.name")] = route.name
        span = self._tracer.start(
            f"{request.method} {template}",
            kind="server",
            parent=parent if parent and is_traceparent(parent) else "",
            **attributes,
        )
        serving.set(span.traceparent)
        return span

    async def call(
        self, request: web.BaseRequest, api: Api, route: Route, verb: str, parameters: Parameters, span: Span
    ) -> Response:
        """Read the body and make the call. Raises: ApiError."""
        patch_type, body = await _read(request, route, verb)
        call = paths.to_request(
            verb,
            route,
            parameters,
            body=body,
            patch_type=patch_type,
            traceparent=span.traceparent,
            request_id=request.headers.get("x-request-id", ""),
            lease_epoch=request.headers.get("x-lease-epoch", ""),
            # A client that sends no fieldManager gets its user agent up to the first slash.
            default_manager=request.headers.get("User-Agent", "").partition("/")[0][:128],
        )
        if patch_type == "apply":
            if not parameters.text("fieldManager"):
                message = "Required value: is required for apply patch"
                raise invalid_option("PatchOptions", "fieldManager", "FieldValueRequired", message)
            call = msgspec.structs.replace(call, force=parameters.flag("force"))
        if (trail := trail_of(request)) is not None:
            trail.on_request_body(call.body, is_patch=verb == "patch")
        response = await api.call(call)
        if response.code == 403 and verb == "create" and self._is_admitting:
            response = await self._again_with_account(api, call, response)
        if call.verb == "delete" and call.resource == "pods" and response.is_ok:
            return self._deleted_pod(response)
        return response

    async def _again_with_account(self, api: Api, call: Request, response: Response) -> Response:
        """Retry a pod's creation while its new namespace has no default service account yet.

        Upstream's admission plugin waits for the account in the same way.
        """
        for _ in range(ACCOUNT_TRIES - 1):
            if response.code != 403 or not is_without_default_account(call, response.error().message):
                break
            await asyncio.sleep(ACCOUNT_WAIT_S)
            response = await api.call(call)
        return response

    def _deleted_pod(self, response: Response) -> Response:
        """Add deletionTimestamp and grace period 0 to the answer to a deletion that removed the pod at once."""
        pod = msgspec.json.decode(response.body)
        if "deletionTimestamp" in pod["metadata"]:
            return response
        marks = {"deletionTimestamp": format_time(self._clock.wall()), "deletionGracePeriodSeconds": 0}
        body = msgspec.json.encode({**pod, "metadata": {**pod["metadata"], **marks}})
        return msgspec.structs.replace(response, body=body)


async def _read(request: web.BaseRequest, route: Route, verb: str) -> tuple[str, bytes]:
    """Return the patch type, empty for other verbs, and the body as JSON. Raises: ApiError."""
    body, patch_type = b"", ""
    content_type = request.headers.get("Content-Type", "")
    if verb == "patch":
        patch_type = media_types.patch_type_of(content_type)
        if patch_type == "strategic" and not route.served.has_strategic_merge:
            raise media_types.unsupported_media_type(
                [n for n, kind in media_types.PATCH_TYPES.items() if kind != "strategic"]
            )
    if verb not in ("get", "list"):
        body = await read_body(request)
    if verb in ("create", "update", "delete", "deletecollection") or patch_type == "apply":
        body = await json_from(body, content_type)
    return patch_type, body
