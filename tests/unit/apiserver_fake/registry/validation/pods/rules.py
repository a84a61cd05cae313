"""How the tests of pods' rules ask: everything that is wrong with a pod, in order."""

from __future__ import annotations

from typing import Any

from apiserver_fake.registry.strategy import strategy_for
from services.api.identity import ADMIN
from services.api.wire import Request

C0 = "spec.containers[0]"
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
NAME_PART = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def container(**more: Any) -> dict[str, Any]:
    return {"name": "c", "image": "i:1", **more}


def pod(annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    meta = {"name": "p", "namespace": "default", **({"annotations": annotations} if annotations else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container()], **spec}}


def wrong(world: Any, document: dict[str, Any]) -> list[str]:
    """Return `path: Type: value: detail` of everything that is wrong with a new pod, in order."""
    causes, _ = world.try_create("pods", document)
    return [f"{cause.path}: {cause.message}" for cause in causes]


def wrong_update(world: Any, stored: dict[str, Any], **spec: Any) -> list[str]:
    causes, _ = world.try_update("pods", stored, {**stored, "spec": {**stored["spec"], **spec}})
    return [f"{cause.path}: {cause.message}" for cause in causes]


def wrong_status(world: Any, stored: dict[str, Any], **status: Any) -> list[str]:
    new = {**stored, "status": {**stored["status"], **status}}
    call = Request(verb="update", resource="pods", namespace="default", name="p", subresource="status")
    causes = strategy_for("pods").validate_status(stored, new, world.ctx(ADMIN, call))
    return [f"{cause.path}: {cause.message}" for cause in causes]
