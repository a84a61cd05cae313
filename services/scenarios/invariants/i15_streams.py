"""I15: every watch stream tells the commit log, the whole of it, once and in order."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from services.api.wire import WatchEvent, WatchRequest
from services.scenarios.invariants.check import Check, Context, Report
from services.scenarios.invariants.stream import Stream
from services.scenarios.invariants.view import matcher
from services.telemetry.eventlog import Line

REASONS = ("Timeout", "SlowWatcher", "Expired", "Shutdown", "ClientGone", "AuthExpired")

Say = Callable[[tuple[str, ...], str], None]
"""Called with the objects concerned and a sentence."""


class _Received:
    """One stream where it arrives. `chain`: who receives what; streams of one chain resume each other."""

    def __init__(self, stream: Stream | None, chain: tuple[object, ...], who: str, kind: str) -> None:
        self.stream, self.chain, self.who, self.kind = stream, chain, who, kind


class _Sent:
    """One stream where it is sent, by the server's own lines; whether it began with the state shows later."""

    def __init__(self, kind: str, data: dict[str, str], start_rv: int, user: str) -> None:
        self.kind, self.start_rv, self.user = kind, start_rv, user
        self.matches = matcher(data.get("namespace", ""), data.get("fields", ""), data.get("labels", ""))
        self.stream: Stream | None = None


class StreamsAreTrue(Check):
    """I15: W1 to W12 and W18 on every recorded stream, and W2 over a chain of resumed ones.

    In the simulation every batch is judged where it arrives. Lines `watch.event` and `watch.bookmark`,
    where the server writes them, are judged as well.
    """

    id = "I15"
    events = ("watch.open", "watch.event", "watch.bookmark", "watch.close", "store.recovered")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.why_not = "no stream was recorded: the API server writes no watch.event lines"
        self._received: dict[int, _Received] = {}
        self._chains: dict[tuple[object, ...], int] = {}
        self._open: dict[tuple[object, ...], int] = {}
        self._sent: dict[tuple[str, int], _Sent] = {}
        self._number = 0
        self._hashed: tuple[bytes, str] = (b"", "")

    def opened(self, component: str, incarnation: int, user: str, request: WatchRequest, say: Say) -> int:
        """Begin to judge a stream; return its number for `received` and `closed`."""
        self.why_not = ""
        self._number += 1
        chain = (
            component, incarnation, user, request.resource, request.namespace, request.field_selector,
            request.label_selector,
        )  # fmt: skip
        kind = self.view.kind_of(request.resource)
        who = f"{component} as {user} on {request.resource}"
        matches = matcher(request.namespace, request.field_selector, request.label_selector)
        start: int | None = None
        if not request.send_initial_events:
            start = int(request.resource_version) if request.resource_version.isdigit() else 0
            known = self._chains.get(chain)
            if start and known is not None and not self._open.get(chain) and start < known:
                say((), f"W2: {who} resumed from {start} after it had been told up to {known}")
        # A start at 0 yields the state without saying where it ends: nothing can be held against it.
        stream = Stream(self.view, kind, matches, start) if kind and start != 0 else None
        self._open[chain] = self._open.get(chain, 0) + 1
        self._received[self._number] = _Received(stream, chain, who, kind)
        return self._number

    def received(self, number: int, batch: list[WatchEvent], say: Say) -> None:
        """Judge one batch as it arrives."""
        received = self._received.get(number)
        if received is None or received.stream is None:
            return
        stream = received.stream
        for event in batch:
            if event.type == "ERROR":
                continue
            if event.type == "BOOKMARK":
                wrong = stream.mark(event.rv, ends_initial=event.initial_events_end)
            else:
                wrong = stream.event(event.type, event.namespace, event.name, event.rv, self._hash(event.body))
            if wrong:
                objects = (f"{received.kind} {event.namespace}/{event.name}",) if event.name else ()
                for detail in wrong:
                    say(objects, f"{detail} ({received.who})")

    def _hash(self, body: bytes) -> str:
        # One change goes to many streams, as the same bytes.
        if self._hashed[0] is not body:
            self._hashed = (body, hashlib.sha256(body).hexdigest())
        return self._hashed[1]

    def closed(self, number: int) -> None:
        """End a stream, and remember where its successor must begin."""
        received = self._received.pop(number, None)
        if received is None:
            return
        self._open[received.chain] -= 1
        if received.stream is not None and received.stream.has_begun:
            self._chains[received.chain] = received.stream.last

    def take(self, line: Line, report: Report) -> None:
        """Judge the API server's own lines of its streams."""
        if line.ev == "store.recovered":
            self._sent.clear()
            if self.context.is_volatile:
                self._received.clear()
                self._chains.clear()
            return
        number = line.data.get("watch")
        if number is None:  # a client's line
            return
        key = (line.inc, int(number))
        if line.ev == "watch.open":
            kind = self.view.kind_of(str(line.data.get("resource", "")))
            self._sent[key] = _Sent(kind, line.data, int(line.data.get("start_rv", 0)), line.identity)
        elif line.ev == "watch.close":
            self._sent.pop(key, None)
            if line.data.get("reason") not in REASONS:
                report(line, f"W18: watch {number} ended for {line.data.get('reason')!r}")
        elif line.data.get("type") == "ERROR":
            return  # it tells why the stream ends, and nothing of what is stored
        elif (sent := self._sent.get(key)) is not None and line.rv is not None:
            self.why_not = ""
            for detail in self._take_sent(sent, line, line.rv):
                report(line, f"{detail} (sent to {sent.user})")

    def _take_sent(self, sent: _Sent, line: Line, rv: int) -> list[str]:
        is_bookmark = line.ev == "watch.bookmark"
        ends_initial = bool(line.data.get("initial_events_end"))
        if sent.stream is None:
            is_state = ends_initial or (not is_bookmark and rv <= sent.start_rv)
            sent.stream = Stream(self.view, sent.kind, sent.matches, None if is_state else sent.start_rv)
        stream = sent.stream
        if is_bookmark:
            if not stream.has_begun and not ends_initial:
                return stream.complete(sent.start_rv) + stream.mark(rv, ends_initial=False)
            return stream.mark(rv, ends_initial=ends_initial)
        wrong = stream.complete(sent.start_rv) if not stream.has_begun and rv > sent.start_rv else []
        obj = line.obj or {}
        return wrong + stream.event(
            str(line.data.get("type", "")), obj.get("ns", ""), obj.get("name", ""), rv,
            str(line.data.get("content_sha256", "")),
        )  # fmt: skip
