"""Audit of requests: the servers report each request's stages, and the auditor writes them as events.

A request has a trail from the moment its caller is known until its answer has left. Each stage that the policy
does not omit is written at once. Source: upstream
`staging/src/k8s.io/apiserver/pkg/endpoints/filters/audit.go`; decision 0040.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from apiserver_fake.extensions.audit.event import (
    Event,
    Source,
    complete_reference,
    new_event,
    recorded_object,
    status_of,
)
from apiserver_fake.extensions.audit.policy import AuditSettings, Policy
from apiserver_fake.registry.policy import Attributes
from services.api.identity import Identity
from services.api.texts import writable
from services.api.times import format_micro_time

DECISION, REASON = "authorization.k8s.io/decision", "authorization.k8s.io/reason"
LONG_RUNNING: Final = frozenset(("attach", "exec", "log", "portforward", "proxy"))
ANNOTATION_BYTES_MAX: Final = 10_000


class Sink(Protocol):
    """The destination of audit lines."""

    written: int
    lost: int

    def write(self, line: bytes) -> None:
        """Append one line."""
        ...


_OF_THE_HEAD: Final = (
    *("audit_id", "request_uri", "verb", "user", "impersonated_user", "source_ips", "user_agent", "object_ref"),
    *("response_status", "annotations"),
)
"""Fields of an event other than objects, which are JSON already."""


class Trail:
    """The audit trail of one request. Every method may be called at any audit level."""

    def __init__(self, auditor: Auditor, chosen: AuditSettings, event: Event, *, is_long_running: bool) -> None:
        self._auditor, self._chosen, self._event = auditor, chosen, event
        self.is_long_running = is_long_running
        self._is_over = self._is_started = False
        self._put("RequestReceived")

    @property
    def takes_answers(self) -> bool:
        """Whether objects in answers are recorded."""
        return self._chosen.has("RequestResponse")

    def impersonates(self, identity: Identity) -> None:
        """Record the user that the caller impersonates."""
        self._event.impersonated_user = identity.user_info

    def on_decision(self, allowed: bool, reason: str) -> None:
        """Record the authorization decision and its reason."""
        self._event.annotations |= {DECISION: "allow" if allowed else "forbid", REASON: reason}

    def on_annotations(self, annotations: Mapping[str, str]) -> None:
        """Record admission's annotations; the first value of a key stays."""
        own = self._event.annotations
        self._event.annotations = {**{key: text[:ANNOTATION_BYTES_MAX] for key, text in annotations.items()}, **own}

    def on_request_body(self, body: bytes, *, is_patch: bool = False) -> None:
        """Record the object that came with the request, as JSON."""
        if not body or self._event.object_ref is None:
            return
        if not is_patch:
            complete_reference(self._event, body)
        if self._chosen.has("Request"):
            self._event.request_object = recorded_object(body, omit_managed_fields=self._chosen.omit_managed_fields)

    def on_response_body(self, body: bytes) -> None:
        """Record the object of the answer, as JSON."""
        if self.takes_answers and body and self._event.object_ref is not None:
            self._event.response_object = recorded_object(body, omit_managed_fields=self._chosen.omit_managed_fields)

    def on_response_started(self, code: int) -> None:
        """Record that the head of a long-running answer is being sent."""
        if self.is_long_running and not self._is_over:
            self._event.response_status = status_of(code, b"")
            self._is_started = True
            self._put("ResponseStarted")

    def on_response_complete(self, code: int, body: bytes = b"") -> None:
        """Record that the answer has been sent, or is about to be."""
        if not self._is_over:
            self._is_over = True
            if not self._is_started:  # else its head has said it
                self._event.response_status = status_of(code, body)
            self._put("ResponseComplete")

    def on_panic(self, error: BaseException) -> None:
        """Record that the request failed with an unexpected exception."""
        if not self._is_over:
            self._is_over = True
            message = f"APIServer panic'd: {type(error).__name__}"
            status = {"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "code": 500}
            self._event.response_status = status
            self._put("Panic")

    def _put(self, stage: str) -> None:
        if stage not in self._chosen.omit_stages:
            self._auditor.put(self._event, stage)


class Auditor:
    """Writes the audit events that the policy asks for. `wall`: returns seconds since the epoch.

    `new_id`: returns an audit id for a request that has none.
    """

    def __init__(self, policy: Policy, sink: Sink, wall: Callable[[], float], new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._policy, self.sink, self._wall = policy, sink, wall
        self._encoder = msgspec.json.Encoder()
        self.levels: dict[tuple[str, ...], float] = {}
        """How many requests are recorded at each level."""

    def begin(
        self, caller: Identity | None, asked: Attributes, source: Source, *, audit_id: str = "", version: str = ""
    ) -> Trail | None:
        """Return the trail of a request; None where the policy records none.

        `caller` None: authentication failed. `version`: version of the requested API group.
        """
        chosen = self._policy.of(caller, asked)
        self.levels[(chosen.level,)] = self.levels.get((chosen.level,), 0) + 1
        if chosen.level == "None":
            return None
        at = format_micro_time(self._wall())
        event = new_event(chosen, audit_id or self._new_id(), caller, asked, source, version, at)
        is_long_running = asked.verb in ("watch", "proxy") or asked.subresource in LONG_RUNNING
        return Trail(self, chosen, event, is_long_running=is_long_running)

    def record_unauthenticated(
        self, asked: Attributes, source: Source, *, audit_id: str, version: str, tried: str
    ) -> None:
        """Record a caller that failed authentication; `tried`: the kinds of credentials it used."""
        chosen = self._policy.of(None, asked)
        if chosen.level == "None" or "ResponseStarted" in chosen.omit_stages:
            return
        at = format_micro_time(self._wall())
        event = new_event(chosen, audit_id, None, asked, source, version, at)
        message = (
            f"Authentication failed, attempted: {tried}" if tried else "Authentication failed, no credentials provided"
        )
        event.response_status = {"metadata": {}, "status": "Failure", "message": message, "code": 401}
        event.response_status |= {"reason": "Unauthorized"}
        self.put(event, "ResponseStarted")

    def put(self, event: Event, stage: str) -> None:
        """Write an event at a stage."""
        event.stage, event.stage_timestamp = stage, format_micro_time(self._wall())
        self.sink.write(self._line(event) + b"\n")

    def _line(self, event: Event) -> bytes:
        try:
            return self._encoder.encode(event)
        except UnicodeEncodeError:
            said = {name: writable(getattr(event, name)) for name in _OF_THE_HEAD}
            return self._encoder.encode(msgspec.structs.replace(event, **said))
