"""Perform the actions of a decision, each safely repeatable, and say what the server thought of them.

The answer to every refusal is one table (`_OUTCOMES`). Actions are performed in order and the first
failure stops those after it, because later ones may rely on earlier ones; what a rule wants done in any
case it puts first. A `Batch` goes out in slow-start order: 1, 2, 4, 8 … at once (controllers 1.3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

import msgspec

from services.api.errors import UnknownOutcome
from services.api.meta import Document, Key
from services.api.resources import resources
from services.api.seams import EventLog
from services.api.wire import Request, Response, encode
from services.client.client import Client, delete_request
from services.reconcile.actions import Action, Batch, Create, Delete, Patch, RecordEvent, Update

NOT_PERFORMED = "not performed: an action before it failed"
SITE_PATHS_MAX = 12


class Outcome(IntEnum):
    """What the caller does next; the worst of several counts."""

    DONE = 0
    TERMINAL = 1
    """Wait for the object to change: repeating the same would be refused again."""
    WAIT = 2
    """Come back after `wait_s`, as the server asked."""
    REQUEUE_NOW = 3
    """What we knew was stale: read and decide again (C5)."""
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
"""Everything else backs off: 401 and 403 (rights or quota may come), other 5xx."""

OUTAGE_WAIT_S = 1.0
"""After 503 and unknown outcomes: the client has backed off for its whole deadline already, and a key
whose own back-off grew through an outage would stay away long after it."""

Failed = Callable[[Action, str], None]


class EventSink(Protocol):
    """The part of a recorder that the executor needs."""

    def record(self, action: RecordEvent, traceparent: str = "") -> None:
        """Record an Event; never blocks."""
        ...


@dataclass
class Report:
    """What became of a decision. `written`: the newest resource version acknowledged, by resource."""

    outcome: Outcome = Outcome.DONE
    reason: str = ""
    wait_s: float = 0.0
    performed: int = 0
    written: dict[str, int] = field(default_factory=dict)

    def note(self, action: Action, result: _ActionResult) -> None:
        """Take one action's result into account; the reason says which action it was."""
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


def request_of(action: Create | Patch | Update | Delete, traceparent: str = "") -> Request:
    """Return the call that performs an action."""
    match action:
        case Create():
            metadata = action.document.get("metadata", {})
            return Request(
                verb="create",
                resource=action.resource,
                namespace=metadata.get("namespace", ""),
                name=metadata.get("name", ""),
                subresource=action.subresource,
                body=encode(action.document),
                traceparent=traceparent,
            )
        case Patch():
            return Request(
                verb="patch",
                resource=action.resource,
                namespace=action.key.namespace,
                name=action.key.name,
                subresource=action.subresource,
                body=encode(action.patch),
                patch_type=action.patch_type,
                uid=action.uid,
                resource_version=action.resource_version,
                traceparent=traceparent,
            )
        case Update():
            return Request(
                verb="update",
                resource=action.resource,
                namespace=action.key.namespace,
                name=action.key.name,
                subresource=action.subresource,
                body=encode(action.document),
                traceparent=traceparent,
            )
        case Delete():
            return delete_request(
                action.resource,
                action.key,
                uid=action.uid,
                resource_version=action.resource_version,
                grace_period_s=action.grace_period_s,
                propagation=action.propagation,
                traceparent=traceparent,
            )


class Executor:
    """Performs one controller's actions with its identity's client."""

    def __init__(
        self, client: Client, sink: EventSink, events: EventLog | None = None, *, controller: str = ""
    ) -> None:
        """`events`: where a `ctrl.write` line goes before each call."""
        self._client = client
        self._sink = sink
        self._events = events
        self._controller = controller
        self.writes_total = 0
        self.failures_total = 0

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

        `failed` is called for every action that was refused or not performed, but not of one whose outcome
        is unknown: what it asked for may still appear, so expectations must keep waiting for it.
        """
        report = Report()
        for position, action in enumerate(actions):
            if isinstance(action, Batch):
                await self._batch(action, key, report, failed, traceparent, rv_seen)
            else:
                await self._together((action,), key, report, failed, traceparent, rv_seen)
            if report.outcome is not Outcome.DONE:
                _report_rest(_flat(actions[position + 1 :]), failed)
                break
        return report

    async def _batch(
        self,
        batch: Batch,
        key: Key,
        report: Report,
        failed: Failed | None,
        traceparent: str,
        rv_seen: int | None,
    ) -> None:
        """Perform 1, 2, 4, 8 … units at once; after a failure the next batch does not start.

        A unit is an action with the events recorded behind it, which are recorded only if it succeeded.
        """
        units = _units(batch.actions)
        start, size = 0, 1
        while start < len(units):
            together = units[start : start + size]
            await self._together(together, key, report, failed, traceparent, rv_seen)
            start, size = start + size, size * 2
            if report.outcome is not Outcome.DONE:
                _report_rest((action for unit in units[start:] for action in unit), failed)
                return

    async def _together(
        self,
        units: Sequence[Action | tuple[Action, ...]],
        key: Key,
        report: Report,
        failed: Failed | None,
        traceparent: str,
        rv_seen: int | None,
    ) -> None:
        flat = [unit if isinstance(unit, tuple) else (unit,) for unit in units]
        if len(flat) == 1:
            results = [await self._one(flat[0][0], key, traceparent, rv_seen)]
        else:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._one(unit[0], key, traceparent, rv_seen)) for unit in flat]
            results = [task.result() for task in tasks]
        for unit, result in zip(flat, results, strict=True):
            report.note(unit[0], result)
            if result.reason and result.is_certain and failed is not None:
                failed(unit[0], result.reason)
            if result.outcome is not Outcome.DONE:
                self.failures_total += 1
                _report_rest(unit[1:], failed)
            else:
                for follower in unit[1:]:
                    if isinstance(follower, RecordEvent):
                        self._sink.record(follower, traceparent)

    async def _one(self, action: Action, key: Key, traceparent: str, rv_seen: int | None) -> _ActionResult:
        if isinstance(action, RecordEvent):
            self._sink.record(action, traceparent)
            return _ActionResult(Outcome.DONE)
        request = request_of(action, traceparent)
        if self._events is not None:
            request = msgspec.structs.replace(request, request_id=self._client.new_request_id())
            self._log(request, action, key, rv_seen)
        self.writes_total += 1
        try:
            response = await self._client.call(request)
        except UnknownOutcome as error:
            reason = f"UnknownOutcome: {error}"
            return _ActionResult(Outcome.WAIT, reason=reason, wait_s=OUTAGE_WAIT_S, is_certain=False)
        return _judge(action, response)

    def _log(self, request: Request, action: Action, key: Key, rv_seen: int | None) -> None:
        assert self._events is not None
        kind = resources()[request.resource].kind if request.resource in resources() else request.resource
        self._events.write(
            "ctrl.write",
            obj=(kind, request.namespace, request.name, request.uid),
            rv_seen=rv_seen,
            req_id=request.request_id,
            data={"controller": self._controller, "key": str(key), "site": _site(request, action)},
        )


def _judge(action: Action, response: Response) -> _ActionResult:
    """Return what an answer means for this action."""
    resource = "" if isinstance(action, RecordEvent) else action.resource
    if response.is_ok:
        return _ActionResult(Outcome.DONE, resource, response.rv)
    error = response.error()
    reason = f"{error.reason}: {error.message}"
    if isinstance(action, Delete) and error.code == 404:
        return _ActionResult(Outcome.DONE, resource)
    if isinstance(action, Create) and error.reason == "AlreadyExists":
        if action.document.get("metadata", {}).get("name"):
            # Done, but nothing new will be seen: the reason makes `failed` lower the expectation.
            return _ActionResult(Outcome.DONE, resource, reason=reason)
        return _ActionResult(Outcome.BACK_OFF, resource, reason=reason)
    outcome = _OUTCOMES.get(error.code, Outcome.BACK_OFF)
    wait_s = float(error.retry_after_s or OUTAGE_WAIT_S) if outcome is Outcome.WAIT else 0.0
    return _ActionResult(outcome, resource, reason=reason, wait_s=wait_s)


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


def _flat(actions: Iterable[Action | Batch]) -> Iterable[Action]:
    for action in actions:
        if isinstance(action, Batch):
            yield from action.actions
        else:
            yield action


def _report_rest(actions: Iterable[Action], failed: Failed | None) -> None:
    if failed is not None:
        for action in actions:
            failed(action, NOT_PERFORMED)


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
