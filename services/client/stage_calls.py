"""API calls of a stage: patches and deletes of one object, and their outcomes.

Source: kubernetes-sigs/kwok pkg/kwok/controllers/stage_controller.go (`playStage`).
"""

from typing import NamedTuple, Protocol

from services.api.errors import UnknownOutcome
from services.api.meta import Key
from services.api.wire import Request, Response, encode
from services.client.client import delete_request
from services.kwok.stages.operation import Outcome, StageDelete, StagePatch

SLICES = "resourceslices.resource.k8s.io"
DEADLINE_S = 10.0
"""Timeout of one call of a stage, in seconds."""


class Calling(Protocol):
    """Maker of calls: a connection, or a client that repeats unanswered calls."""

    async def call(self, request: Request) -> Response:
        """Return the definite answer. Raises: UnknownOutcome."""
        ...


class Target(NamedTuple):
    """The object that a stage is played on."""

    resource: str
    key: Key
    uid: str
    is_deleting: bool = False


def requests_of(
    operation: StagePatch | StageDelete, target: Target, traceparent: str = "", *, manager: str = "kubelet-stages"
) -> list[Request]:
    """Return the calls of an operation, in order."""
    resource, key, uid = target.resource, target.key, target.uid
    if isinstance(operation, StageDelete):
        if target.resource not in ("pods", "nodes", SLICES):
            return [delete_request(resource, key, uid=uid, traceparent=traceparent)]
        # What runs is not cut short by its node (X-NR8): it is first asked to end, then confirmed.
        graces = (0,) if target.is_deleting else (None, 0)
        return [delete_request(resource, key, uid=uid, grace_period_s=s, traceparent=traceparent) for s in graces]
    return [
        Request(
            verb="patch",
            resource=resource,
            namespace=key.namespace,
            name=key.name,
            subresource=operation.subresource,
            patch_type=operation.type,
            uid=uid,
            body=encode(operation.body),
            traceparent=traceparent,
            field_manager=manager,
            as_user=operation.as_user,
            deadline_s=DEADLINE_S,
        )
    ]


async def ask(api: Calling, request: Request) -> Outcome:
    """Return the outcome of a call. Deleting a missing object succeeds."""
    try:
        response = await api.call(request)
    except UnknownOutcome as error:
        return Outcome(0, str(error))
    if response.is_ok:
        return Outcome(response.code, "", response.body)
    if response.code == 404 and request.verb == "delete":
        return Outcome(200)
    return Outcome(response.code, response.error().message)
