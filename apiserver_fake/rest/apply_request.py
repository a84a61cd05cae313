"""Performs a server-side apply: read the object, plan (`apply`), write it back on the version that was read."""

from __future__ import annotations

from typing import Any

import msgspec

from apiserver_fake.decode import json_object
from apiserver_fake.patch.apply import plan
from services.api.errors import BadRequest
from services.api.meta import Document
from services.api.resources import resources
from services.api.wire import Api, Request, Response

TRIES_MAX = 5
"""How often an apply starts over because another client wrote in between."""


def _named(config: Document, request: Request) -> Document:
    """Return the configuration with kind, name and namespace checked against the path. Raises: BadRequest."""
    resource = resources()[request.resource]
    meta = config.get("metadata") or {}
    if not isinstance(meta, dict):
        raise BadRequest("metadata: want an object")
    wanted = {"apiVersion": resource.api_version, "kind": resource.kind}
    if not request.subresource:
        for field, value in wanted.items():
            if config.get(field) != value:
                raise BadRequest(
                    f"an apply patch of {request.resource} needs {field} {value!r}, has {config.get(field)!r}"
                )
    if meta.get("name", request.name) != request.name:
        raise BadRequest(f"the name in the patch ({meta['name']}) does not match the name in the URL ({request.name})")
    if meta.get("namespace", request.namespace) != request.namespace:
        raise BadRequest(
            f"the namespace in the patch ({meta['namespace']}) does not match the one in the URL ({request.namespace})"
        )
    placed = {"name": request.name, **({"namespace": request.namespace} if request.namespace else {})}
    return {**config, "metadata": {**meta, **placed}}


async def perform(api: Api, request: Request, *, is_forced: bool, wall_s: float) -> Response:
    """Return the answer to an apply patch: 201 when it created the object, 200 otherwise.

    Raises: Conflict, BadRequest; other refusals come back as the response.
    """
    config = json_object(request.body, "error decoding YAML", "an apply patch must be an object")
    config = _named(config, request)
    wanted_version = str((config["metadata"]).get("resourceVersion") or "")
    response = Response(code=409)
    for _ in range(TRIES_MAX):
        read = await api.call(
            Request(
                verb="get",
                resource=request.resource,
                namespace=request.namespace,
                name=request.name,
                subresource=request.subresource,
                traceparent=request.traceparent,
            )
        )
        live: Any = None
        if read.is_ok:
            live = msgspec.json.decode(read.body)
        elif read.code != 404 or request.subresource:
            return read
        planned = plan(
            live,
            config,
            manager=request.field_manager,
            is_forced=is_forced,
            wall_s=wall_s,
            subresource=request.subresource,
        )
        if planned is None:
            return read
        if live is not None:
            version = wanted_version or live["metadata"]["resourceVersion"]
            planned["metadata"] = {**planned["metadata"], "resourceVersion": version}
        response = await api.call(
            msgspec.structs.replace(
                request,
                verb="update" if live is not None else "create",
                name=request.name if live is not None else "",
                patch_type="",
                body=msgspec.json.encode(planned),
            )
        )
        # Another client wrote in between, or created or deleted the object: plan again on what is there now.
        if response.is_ok or wanted_version or response.code not in (404, 409):
            return response
    return response
