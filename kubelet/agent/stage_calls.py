"""The calls that stages make: status in the node's name, metadata in its host's, both for one uid alone.

A node may not change the metadata of its pods, as in Kubernetes; the process that hosts it may, a little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kubelet.agent.requests import CALL_DEADLINE_S
from kubelet.effects import Operation, StageDelete, StageEvent, StagePatch
from services.api.errors import UnknownOutcome
from services.api.meta import Key
from services.api.wire import Api, Request, Response, encode
from services.client.client import delete_request


class Outcome(NamedTuple):
    """How playing ended: the last code (0: no answer came), what a refusal said, and the object after it."""

    code: int
    said: str = ""
    body: bytes = b""


class Target(NamedTuple):
    """The object that a stage is played on. `resource`: pods or nodes."""

    resource: str
    key: Key
    uid: str
    is_deleting: bool = False


async def perform(
    wanted: Sequence[Operation],
    target: Target,
    node: Api,
    host: Api,
    record: Callable[[StageEvent], None],
    traceparent: str,
) -> Outcome:
    """Do it in order; what fails ends it."""
    outcome = Outcome(200)
    for operation in wanted:
        if isinstance(operation, StageEvent):
            record(operation)
            continue
        requests = _requests(operation, target, traceparent)
        for request in requests:
            is_own = request.subresource == "status" or isinstance(operation, StageDelete)
            outcome = await _ask(node if is_own else host, request)
            if not 200 <= outcome.code < 300:
                return outcome
    return outcome


def _requests(operation: StagePatch | StageDelete, target: Target, traceparent: str) -> list[Request]:
    if isinstance(operation, StageDelete):
        # What runs is not cut short by its node (X-NR8): it is first asked to end, then confirmed.
        graces = (0,) if target.is_deleting else (None, 0)
        return [
            delete_request(target.resource, target.key, uid=target.uid, grace_period_s=grace, traceparent=traceparent)
            for grace in graces
        ]
    return [
        Request(
            verb="patch",
            resource=target.resource,
            namespace=target.key.namespace,
            name=target.key.name,
            subresource=operation.subresource,
            patch_type=operation.type,
            uid=target.uid,
            body=encode(operation.body),
            traceparent=traceparent,
            field_manager="kubelet-stages",
            deadline_s=CALL_DEADLINE_S,
        )
    ]


async def _ask(api: Api, request: Request) -> Outcome:
    try:
        response: Response = await api.call(request)
    except UnknownOutcome as error:
        return Outcome(0, str(error))
    if response.is_ok:
        return Outcome(response.code, "", response.body)
    if response.code == 404 and request.verb == "delete":
        return Outcome(200)
    return Outcome(response.code, response.error().message)
