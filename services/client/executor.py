"""Executor of a decision's actions: each is safely repeatable, and the server's answer is reported.

One table (`_OUTCOMES`) maps every refusal to an outcome. Actions are performed in order, and the first failure
stops those after it, because later ones may rely on earlier ones; a rule puts unconditional actions first. A
`Batch` goes out in slow-start order: 1, 2, 4, 8 … at once (controllers 1.3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

import msgspec

from services.api.errors import UnknownOutcome
from services.api.meta import Document, Key
from services.api.resources import resources
from services.api.seams import EventLog
from services.api.wire import Request, Response, encode
from services.client.client import Client, Options, delete_request, request_of
from services.client.recorder import Recorder
from services.reconcile.actions import (
    NOT_PERFORMED,
    OWN_WRITE,
    Action,
    Batch,
    Create,
    Delete,
    Patch,
    RecordEvent,
    Update,
)

SITE_PATHS_MAX = 12


class Outcome(IntEnum):
    """Next step of the caller; of several outcomes the worst counts."""

    DONE = 0
    TERMINAL = 1
    """Wait until the object changes: the same call would be refused again."""
    WAIT = 2
    """Retry after `wait_s`, as the server asked."""
    REQUEUE_NOW = 3
    """The cached state was stale: read and decide again (C5)."""
    BACK_OFF = 4


_OUTCOMES: dict[int, Outcome] = {
    400: Outcome.TERMINAL,
    404: Outcome.REQUEUE_NOW,  # the object, or the namespace it should go into, is gone: the cache will show it
    405: Outcome.TERMINAL,
    409: Outcome.REQUEUE_NOW,
    410: Outcome.REQUEUE_NOW,
    413: Outcome.TERMINAL,
    415: Outcome.TERMINAL,
    422: Outcome.TERMINAL,
    429: Outcome.WAIT,
    503: Outcome.WAIT,
}
"""Outcomes by HTTP code. All others back off: 401 and 403 (rights or quota may come), other 5xx."""

OUTAGE_WAIT_S = 1.0
"""Wait after 503 and unknown outcomes, in seconds. The client has already backed off for its whole deadline; a
key whose own back-off grew during an outage would wait long after its end.
"""

Failed = Callable[[Action, str], None]


@dataclass
class Report:
    """Result of a decision. `written`: the newest acknowledged resource version, by resource."""

    outcome: Outcome = Outcome.DONE
    reason: str = ""
    wait_s: float = 0.0
    performed: int = 0
    written: dict[str, int] = field(default_factory=dict)

    def note(self, action: Action, result: _ActionResult) -> None:
        """Record the result of one action; the reason names the action."""
        if result.rv and result.rv > self.written.get(result.resource, 0):
            self.written[result.resource] = result.rv
        if result.outcome is Outcome.DONE:
            self.performed += 1
        elif result.outcome > self.outcome:
            self.outcome, self.wait_s = result.outcome, result.wait_s
            self.reason = f"{_describe(action)}: {result.reason}"


@dataclass(frozen=True)
class _ActionResult:
    outcome: Outcome
    resource: str = ""
    rv: int = 0
    reason: str = ""
    wait_s: float = 0.0
    is_certain: bool = True


@dataclass(frozen=True)
class _Decision:
    """The decision in progress: its key, and its results so far."""

    key: Key
    failed: Failed | None
    traceparent: str
    rv_seen: int | None
    report: Report

    def skip(self, actions: Iterable[Action]) -> None:
        """Report that these are not performed."""
        if self.failed is not None:
            for action in actions:
                self.failed(action, NOT_PERFORMED)


def _request_of(action: Create | Patch | Update | Delete, traceparent: str) -> Request:
    """Return the call that performs an action."""
    match action:
        case Create(resource, document, subresource):
            metadata = document.get("metadata", {})
            key, body = Key(metadata.get("namespace", ""), metadata.get("name", "")), encode(document)
            return request_of("create", resource, key, body, subresource=subresource, traceparent=traceparent)
        case Update(resource, key, document, subresource):
            body = encode(document)
            return request_of("update", resource, key, body, subresource=subresource, traceparent=traceparent)
        case Patch(resource, key, patch, subresource, patch_type, uid, rv):
            options: Options = {"uid": uid, "resource_version": rv, "traceparent": traceparent}
            options |= {"subresource": subresource, "patch_type": patch_type}
            return request_of("patch", resource, key, encode(patch), **options)
        case Delete(resource, key, uid, rv, grace_s, propagation):
            options = {"uid": uid, "resource_version": rv, "traceparent": traceparent}
            return delete_request(resource, key, grace_period_s=grace_s, propagation=propagation, **options)


class Executor:
    """Performs one controller's actions with the client of its identity."""

    def __init__(
        self, client: Client, recorder: Recorder, events: EventLog | None = None, *, controller: str = ""
    ) -> None:
        """`events`: the event log that gets a `ctrl.write` line before each call."""
        self._client, self._recorder = client, recorder
        self._events, self._controller = events, controller
        self.writes_total = 0

    async def perform(
        self,
        actions: Sequence[Action | Batch],
        *,
        key: Key,
        failed: Failed | None = None,
        traceparent: str = "",
        rv_seen: int | None = None,
    ) -> Report:
        """Perform in order until one fails; return the outcome and the versions written.

        `failed` is called for every refused or skipped action, but not for one with an unknown outcome: its effect may
        still appear, so expectations must keep waiting for it.
        """
        decision = _Decision(key, failed, traceparent, rv_seen, Report())
        for position, action in enumerate(actions):
            if isinstance(action, Batch):
                await self._batch(action, decision)
            else:
                await self._together(((action,),), decision)
            if decision.report.outcome is not Outcome.DONE:
                for rest in actions[position + 1 :]:
                    decision.skip(rest.actions if isinstance(rest, Batch) else (rest,))
                break
        return decision.report

    async def _batch(self, batch: Batch, decision: _Decision) -> None:
        """Perform 1, 2, 4, 8 … units at once; after a failure the next batch does not start.

        A unit is an action with the events recorded behind it, which are recorded only if it succeeded.
        """
        units = _units(batch.actions)
        start, size = 0, 1
        while start < len(units):
            await self._together(units[start : start + size], decision)
            start, size = start + size, size * 2
            if decision.report.outcome is not Outcome.DONE:
                decision.skip(action for unit in units[start:] for action in unit)
                return

    async def _together(self, units: Sequence[tuple[Action, ...]], decision: _Decision) -> None:
        if len(units) == 1:
            results = [await self._one(units[0][0], decision)]
        else:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._one(unit[0], decision)) for unit in units]
            results = [task.result() for task in tasks]
        for unit, result in zip(units, results, strict=True):
            decision.report.note(unit[0], result)
            if result.reason and result.is_certain and decision.failed is not None:
                decision.failed(unit[0], result.reason)
            if result.outcome is not Outcome.DONE:
                decision.skip(unit[1:])
            else:
                for follower in unit[1:]:
                    if isinstance(follower, RecordEvent):
                        self._recorder.record(follower, decision.traceparent)

    async def _one(self, action: Action, decision: _Decision) -> _ActionResult:
        if isinstance(action, RecordEvent):
            self._recorder.record(action, decision.traceparent)
            return _ActionResult(Outcome.DONE)
        if isinstance(action, Delete) and action.resource_version == OWN_WRITE:
            action = replace(action, resource_version=str(decision.report.written[action.resource]))
        request = _request_of(action, decision.traceparent)
        if self._events is not None:
            request = msgspec.structs.replace(request, request_id=self._client.new_request_id())
            kind = resources()[request.resource].kind if request.resource in resources() else request.resource
            self._events.write(
                "ctrl.write",
                obj=(kind, request.namespace, request.name, request.uid),
                rv_seen=decision.rv_seen,
                req_id=request.request_id,
                data={"controller": self._controller, "key": str(decision.key), "site": _site(request, action)},
            )
        self.writes_total += 1
        try:
            response = await self._client.call(request)
        except UnknownOutcome as error:
            reason = f"UnknownOutcome: {error}"
            return _ActionResult(Outcome.WAIT, reason=reason, wait_s=OUTAGE_WAIT_S, is_certain=False)
        return _judge(action, response)


def _judge(action: Create | Patch | Update | Delete, response: Response) -> _ActionResult:
    """Return what an answer means for this action."""
    if response.is_ok:
        return _ActionResult(Outcome.DONE, action.resource, response.rv)
    error = response.error()
    reason = f"{error.reason}: {error.message}"
    if isinstance(action, Delete) and error.code == 404:
        return _ActionResult(Outcome.DONE, action.resource)
    if isinstance(action, Create) and error.reason == "AlreadyExists":
        if action.document.get("metadata", {}).get("name"):
            # Done, but nothing new will be seen: the reason makes `failed` lower the expectation.
            return _ActionResult(Outcome.DONE, action.resource, reason=reason)
        return _ActionResult(Outcome.BACK_OFF, action.resource, reason=reason)
    outcome = _OUTCOMES.get(error.code, Outcome.BACK_OFF)
    wait_s = float(error.retry_after_s or OUTAGE_WAIT_S) if outcome is Outcome.WAIT else 0.0
    return _ActionResult(outcome, action.resource, reason=reason, wait_s=wait_s)


def _describe(action: Action) -> str:
    if isinstance(action, RecordEvent):
        return f"event {action.reason}"
    if isinstance(action, Create):
        metadata = action.document.get("metadata", {})
        name = metadata.get("name") or f"{metadata.get('generateName', '')}…"
        return f"create {action.resource} {Key(metadata.get('namespace', ''), name)}"
    subresource = "" if isinstance(action, Delete) or not action.subresource else f"/{action.subresource}"
    return f"{type(action).__name__.lower()} {action.resource}{subresource} {action.key}"


def _units(actions: Iterable[Action]) -> list[tuple[Action, ...]]:
    units: list[tuple[Action, ...]] = []
    for action in actions:
        if isinstance(action, RecordEvent) and units:
            units[-1] = (*units[-1], action)
        else:
            units.append((action,))
    return units


def _site(request: Request, action: Action) -> str:
    """Return the write site: verb, resource and the paths it sets (guarantees 12.6)."""
    target = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
    paths: list[str] = []
    if isinstance(action, Patch):
        patch = action.patch
        paths = sorted(_paths(patch) if isinstance(patch, dict) else {str(step.get("path", "")) for step in patch})
    return " ".join([request.verb, target, *paths[:SITE_PATHS_MAX]])


def _paths(patch: Document) -> Iterable[str]:
    for name, value in patch.items():
        if isinstance(value, dict):
            yield from (f"{name}.{inner}" for inner in value if inner not in ("uid", "resourceVersion"))
        else:
            yield name
