"""I15: every watch stream delivers the commit log completely, once and in order."""

import hashlib
from collections.abc import Callable

from lab.scenarios.invariants.check import Check, Context, Report
from lab.scenarios.invariants.view import Key, Matches, View, matcher
from services.api.wire import WatchEvent, WatchRequest
from services.telemetry.eventlog import Line

REASONS = ("Timeout", "SlowWatcher", "Expired", "Shutdown", "ClientGone", "AuthExpired", "Redefined")

HASHES_KEPT = 64
"""Bodies whose hashes are remembered."""

Say = Callable[[tuple[str, ...], str], None]
"""Callback for a violation: the objects concerned, and a sentence."""


class Stream:
    """One watch stream of one kind, checked against the commit log event by event (W1 to W12).

    `event` and `mark` return errors as sentences that begin with the rule's name and show the two versions
    that conflict. `start` None: the stream begins with the initial state, up to the bookmark that ends it
    (W12).

    `matches` None: commit lines do not show what the selector matches, so only the order is judged. Once
    `is_blind`, the stream has fallen out of the view's window and is no longer judged.
    """

    def __init__(self, view: View, kind: str, matches: Matches | None, start: int | None) -> None:
        self._view, self._table = view, view.tables[kind]
        self._kind, self._matches, self._start = kind, matches, start or 0
        self._initial: dict[Key, tuple[int, str]] | None = {} if start is None else None
        self._position = 0 if start is None else self._table.position_after(start)
        self._bookmark = 0
        self.last = start or 0
        """The version up to which the receiver has events."""
        self.is_blind = start is not None and start < self._table.oldest_rv

    @property
    def has_begun(self) -> bool:
        """Whether the initial state, if it was requested, is complete."""
        return self._initial is None

    def event(self, kind: str, namespace: str, name: str, rv: int, sha256: str) -> list[str]:
        """Take an ADDED, MODIFIED or DELETED; return the errors found."""
        if self.is_blind:
            return []
        if self._initial is not None:
            wrong = []
            if kind != "ADDED":
                wrong.append(f"W12: {kind} of {namespace}/{name} before the state was complete")
            if (namespace, name) in self._initial:
                wrong.append(f"W12: {namespace}/{name} came twice before the state was complete")
            self._initial[(namespace, name)] = (rv, sha256)
            return wrong
        if rv <= self._start:
            return [f"W10: {rv} was delivered to a stream that starts after {self._start}"]
        if rv <= self.last:
            return [f"W1: {rv} was delivered after {self.last}"]
        wrong = self._advance(rv - 1, "W3", f"event {rv}")
        self.last = rv
        if self._matches is None or self.is_blind:
            return wrong
        changes, index = self._table.changes, self._position - self._table.dropped
        if index >= len(changes) or changes[index].rv != rv:
            return [*wrong, f"W8: {kind} of {namespace}/{name} at {rv}, where no such change is stored"]
        change = changes[index]
        self._position += 1
        stored, wanted = change.content, change.seen_by(self._matches)
        if (stored.namespace, stored.name) != (namespace, name):
            wrong.append(f"W8: {namespace}/{name} at {rv}, where {stored.namespace}/{stored.name} is stored")
        elif wanted != kind:
            came = f"{namespace}/{name} at {rv} came as {kind}, not {wanted or 'at all'}"
            wrong.append(f"{'W9' if wanted else 'W7'}: {came}")
        elif kind == "DELETED" and change.type != "DELETED":
            pass  # what stops matching comes as it last matched (W7)
        elif sha256 and stored.sha256 and sha256 != stored.sha256:
            wrong.append(f"W8: {namespace}/{name} at {rv} came as {sha256[:12]}, {stored.sha256[:12]} is stored")
        return wrong

    def mark(self, rv: int, *, ends_initial: bool) -> list[str]:
        """Take a bookmark; return the errors found."""
        if self.is_blind:
            return []
        wrong = []
        commit = self._view.by_rv.get(rv)
        if commit is not None and commit.group_end != rv:
            wrong.append(f"W4: a bookmark at {rv}, inside the group that ends at {commit.group_end}")
        if rv > self._view.rv:
            wrong.append(f"W6: a bookmark at {rv}, the newest version is {self._view.rv}")
        if self._initial is not None:
            return [*wrong, *self.complete(rv)] if ends_initial else wrong
        if ends_initial:
            wrong.append(f"W12: a second end of the state at {rv}")
        if rv < max(self.last, self._bookmark):
            return [*wrong, f"W1: a bookmark at {rv} after {max(self.last, self._bookmark)}"]
        wrong += self._advance(rv, "W6", f"bookmark {rv}")
        self._bookmark = self.last = rv
        return wrong

    def complete(self, rv: int) -> list[str]:
        """End the initial state as of `rv`: compare it with the stored objects, and return the errors found."""
        initial_objects, self._initial = self._initial or {}, None
        self.last = self._bookmark = rv
        self._position = self._table.position_after(rv)
        if self._matches is None:
            return []
        stored = self._table.at(rv, self._matches)
        if stored is None:
            self.is_blind = True
            return []
        wrong = []
        for (namespace, name), (seen_rv, sha256) in initial_objects.items():
            there = stored.get((namespace, name))
            if there is None:
                wrong.append(f"W12: {namespace}/{name} is in the state at {rv} and not stored")
            elif there.rv != seen_rv or (sha256 and there.sha256 and sha256 != there.sha256):
                wrong.append(f"W12: {namespace}/{name} is in the state at {rv} as of {seen_rv}, stored is {there.rv}")
        wrong += [
            f"W12: {key[0]}/{key[1]} is missing from the state at {rv}" for key in stored if key not in initial_objects
        ]
        return wrong

    def _advance(self, rv: int, rule: str, what: str) -> list[str]:
        """Step over the changes up to `rv`; those that match should have been delivered before."""
        table = self._table
        if self._matches is None:
            return []
        if self._position < table.dropped:
            self.is_blind = True
            return []
        wrong: list[str] = []
        end = table.position_after(rv, self._position)
        if end == self._position:
            return wrong
        for change in table.between(self._position, end, self._matches):
            if change.seen_by(self._matches):
                missed = f"{change.content.namespace}/{change.content.name} at {change.rv}"
                wrong.append(f"{rule}: {what} came after {self.last}, without {missed}")
        self._position = end
        return wrong


class _Received:
    """A stream at its receiver. `chain`: receiver and selection; streams of one chain resume each other."""

    def __init__(self, stream: Stream | None, chain: tuple[object, ...], who: str, kind: str) -> None:
        self.stream, self.chain, self.who, self.kind = stream, chain, who, kind


class _ServerStream:
    """A stream at its sender, from the server's own lines; whether it began with the initial state shows only later."""

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
        self._sent: dict[tuple[str, int], _ServerStream] = {}
        self._number = 0
        self._hashes: dict[int, tuple[bytes, str]] = {}

    def on_watch_opened(self, component: str, incarnation: int, user: str, request: WatchRequest, say: Say) -> int:
        """Start to judge a stream; return its number for `on_watch_events` and `on_watch_closed`."""
        self.why_not = ""
        self._number += 1
        selected = (request.namespace, request.field_selector, request.label_selector)
        chain = (component, incarnation, user, request.resource, *selected)
        kind = self.view.kinds.get(request.resource, "")
        who = f"{component} as {user} on {request.resource}"
        matches = matcher(*selected)
        start: int | None = None
        if not request.send_initial_events:
            start = int(request.resource_version) if request.resource_version.isdigit() else 0
            known = self._chains.get(chain)
            if start and known is not None and not self._open.get(chain) and start < known:
                say((), f"W2: {who} resumed from {start} after it had events up to {known}")
        # A start at 0 yields the state without saying where it ends: nothing can be held against it.
        stream = Stream(self.view, kind, matches, start) if kind and start != 0 else None
        self._open[chain] = self._open.get(chain, 0) + 1
        self._received[self._number] = _Received(stream, chain, who, kind)
        return self._number

    def on_watch_events(self, number: int, batch: list[WatchEvent], say: Say) -> None:
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
        """Return the hash of a body. One change goes to many streams soon after another, as the same bytes."""
        known = self._hashes.get(id(body))
        if known is not None and known[0] is body:
            return known[1]
        sha256 = hashlib.sha256(body).hexdigest()
        self._hashes[id(body)] = (body, sha256)
        if len(self._hashes) > HASHES_KEPT:
            del self._hashes[next(iter(self._hashes))]
        return sha256

    def on_watch_closed(self, number: int) -> None:
        """End a stream, and remember the version from which the next stream of its chain must resume."""
        received = self._received.pop(number, None)
        if received is None:
            return
        self._open[received.chain] -= 1
        if received.stream is not None and received.stream.has_begun:
            self._chains[received.chain] = received.stream.last

    def take(self, line: Line, report: Report) -> None:
        """Judge the API server's own lines about its streams."""
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
            kind = self.view.kinds.get(str(line.data.get("resource", "")), "")
            self._sent[key] = _ServerStream(kind, line.data, int(line.data.get("start_rv", 0)), line.identity)
        elif line.ev == "watch.close":
            self._sent.pop(key, None)
            if line.data.get("reason") not in REASONS:
                report(line, f"W18: watch {number} ended for {line.data.get('reason')!r}")
        elif line.data.get("type") == "ERROR":
            return  # it says why the stream ends, and nothing of what is stored
        elif (sent := self._sent.get(key)) is not None and line.rv is not None:
            self.why_not = ""
            for detail in self._take_sent(sent, line, line.rv):
                report(line, f"{detail} (sent to {sent.user})")

    def _take_sent(self, sent: _ServerStream, line: Line, rv: int) -> list[str]:
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
        obj, sha256 = line.obj or {}, str(line.data.get("content_sha256", ""))
        kind = str(line.data.get("type", ""))
        return wrong + stream.event(kind, obj.get("ns", ""), obj.get("name", ""), rv, sha256)
