"""The auditor: passes each line to the invariants that subscribe to it, and collects their violations.

An invariant is one file of this folder, named `i<number>_…`; the folder is the register.
"""

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import msgspec

from lab.scenarios.invariants.by_hand import RAW, ByHand, text_of
from lab.scenarios.invariants.check import Calm, Check, Context, Report
from lab.scenarios.invariants.i13_acknowledged import AcknowledgedIsStored
from lab.scenarios.invariants.i15_streams import StreamsAreTrue
from lab.scenarios.invariants.view import WINDOW, Commit, View
from services.api.identity import CONTROLLER_PREFIX
from services.api.switches import Switches
from services.api.wire import Request, Response, WatchEvent, WatchRequest
from services.telemetry.eventlog import Line

FORBIDDEN = 403
TICK_NS = 1_000_000_000
VIOLATIONS_MAX = 100
"""Maximum number of violations that are kept; all are counted."""

ELSEWHERE: dict[str, str] = {
    "I20": "judged at rest, by chaos runs",
    "I28": "judged at rest, by chaos runs",
    "I33": "judged of processes, whose observer may be behind; that of a simulation sees each change at once",
    "I31": "metrics are held against the state by tests of each component",
}
"""Invariants of guarantees 6 that no file here judges, and the reasons."""


class Violation(msgspec.Struct, frozen=True):
    """One violation. `at`: seconds of the log's own clock; `objects`: `kind ns/name` texts. `by_hand`: a write
    past admission explains it.
    """

    invariant: str
    at: float
    objects: tuple[str, ...]
    trace_id: str
    detail: str
    by_hand: bool = False


@cache
def checks() -> tuple[type[Check], ...]:
    """Return the classes of all judged invariants, in order of number."""
    names = sorted(info.name for info in pkgutil.iter_modules([str(Path(__file__).parent)]) if info.name[1:3].isdigit())
    found = (each for name in names for each in vars(importlib.import_module(f"{__package__}.{name}")).values())
    return tuple(each for each in found if isinstance(each, type) and issubclass(each, Check) and each.id)


Take = Callable[[Line, Report], None]
TakeCommit = Callable[[Line, Commit, Report], None]


class Auditor:
    """Judge of log lines as they come. `violations` holds the first violations; `count` counts all but those by
    hand.

    Pure: the same lines, and in a simulation the same streams and responses, give the same result.
    """

    def __init__(
        self,
        switches: Switches,
        *,
        is_volatile: bool = False,
        without: frozenset[str] = frozenset(),
        window: int = WINDOW,
    ) -> None:
        """Create the invariants. `without`: those that are not judged. `window`: number of changes of a kind that
        are kept; a line about an older change is not judged.
        """
        self.violations: list[Violation] = []
        self.count = self.by_hand = 0
        self.lines = 0
        self.forbidden: dict[str, int] = {}
        """How often a controller was answered Forbidden, by user, verb and resource: its role may lack a rule."""
        self._volatile = is_volatile
        self._view, self._calm, self._written = View(window), Calm(), ByHand()
        context = Context(switches, self._view, self._calm, is_volatile)
        self._checks = [make(context) for make in checks() if make.id not in without]
        self._reports: list[tuple[Check, Report]] = [(check, partial(self._report, check.id)) for check in self._checks]
        self._to_all: list[tuple[Take, Report]] = [
            (check.take, report) for check, report in self._reports if not check.events
        ]
        self._by_event: dict[str, list[tuple[Take, Report]]] = {
            name: [
                (check.take, report)
                for check, report in self._reports
                if name in (check.events or (name,)) and not (check.events and name == "store.commit")
            ]
            for name in sorted({name for check in self._checks for name in check.events})
        }
        self._of_kinds: dict[str, list[tuple[TakeCommit, Report]]] = {}
        self._ticking = [(check, report) for check, report in self._reports if type(check).tick is not Check.tick]
        self._next_tick_ns = 0
        self._newest: Line | None = None
        self._broken: dict[str, None] = {}
        self._streams = next(check for check in self._checks if isinstance(check, StreamsAreTrue))
        self._answers = next(check for check in self._checks if isinstance(check, AcknowledgedIsStored))

    def take(self, line: Line) -> None:
        """Judge one line with every invariant that subscribes to it."""
        self.lines += 1
        self._newest = line
        ev = line.ev
        if ev == "store.commit":
            if line.obj is None:
                return
            self._on_commit(line, line.obj["kind"])
        elif ev in ("proc.start", "fault.inject", "fault.heal"):
            self._calm.take(line)
        elif ev == "api.response" and line.data["code"] == FORBIDDEN and line.identity.startswith(CONTROLLER_PREFIX):
            resource, *_, subresource = [*line.data["path"].split("/"), *("",) * 3][:4]
            what = f"{line.identity} {line.data['verb']} {resource}{'/' if subresource else ''}{subresource}"
            self.forbidden[what] = self.forbidden.get(what, 0) + 1
        elif ev == "store.recovered" and self._volatile:
            self._view.forget()
        for take, report in self._by_event.get(ev, self._to_all):
            take(line, report)
        if line.mono_ns >= self._next_tick_ns:
            self._next_tick_ns = line.mono_ns + TICK_NS
            for check, report in self._ticking:
                check.tick(line, report)

    def _on_commit(self, line: Line, kind: str) -> None:
        """Have the invariants that commits of a kind concern judge the one that a line records, if it is new."""
        if line.data.get("subresource") == RAW:
            self._written.take(line)
        self._view.take(line)
        if (commit := self._view.commit) is None:
            return
        takers = self._of_kinds.get(kind)
        for take, report in takers if takers is not None else self._takers_of(kind):
            take(line, commit, report)

    def _takers_of(self, kind: str) -> list[tuple[TakeCommit, Report]]:
        """Return the invariants that commits of a kind concern, in order of number."""
        concerned: list[tuple[TakeCommit, Report]] = [
            (check.on_commit, report)
            for check, report in self._reports
            if "store.commit" in check.events
            and type(check).on_commit is not Check.on_commit
            and kind in (check.kinds or (kind,))
        ]
        self._of_kinds[kind] = concerned
        return concerned

    @property
    def objects(self) -> int:
        """Number of stored objects."""
        return self._view.objects

    @property
    def not_judged(self) -> dict[str, str]:
        """Invariants of guarantees 6 that this run does not judge, with the reasons."""
        now_s = self._newest.mono_ns / 1e9 if self._newest is not None else 0.0
        reasons = dict(ELSEWHERE)
        for check in self._checks:
            if check.id not in self._broken and (why := check.why_not or check.unfinished_text(now_s)):
                reasons[check.id] = why
        return dict(sorted(reasons.items(), key=lambda item: int(item[0][1:])))

    # What a simulation shows besides the log.

    def on_watch_opened(self, component: str, incarnation: int, user: str, request: WatchRequest) -> int:
        """Note that a component opened a watch; return the number that identifies it."""
        return self._streams.on_watch_opened(component, incarnation, user, request, self._report_stream)

    def on_watch_events(self, number: int, batch: list[WatchEvent]) -> None:
        """Note a batch that arrived on a watch."""
        self._streams.on_watch_events(number, batch, self._report_stream)

    def on_watch_closed(self, number: int) -> None:
        """Note that a watch has ended."""
        self._streams.on_watch_closed(number)

    def on_response(self, request: Request, response: Response) -> None:
        """Note a response that arrived."""
        if self._newest is not None:
            self._answers.on_response(self._newest, request, response, self._report_answer)

    def report(
        self,
        invariant: str,
        at: float,
        objects: tuple[str, ...],
        detail: str,
        trace_id: str = "",
        line: Line | None = None,
    ) -> None:
        """Add a violation, for example one that was found at rest; `line`: the line that broke the rule."""
        by_hand = self._written.explains(objects, detail, line)
        self.count += not by_hand
        self.by_hand += by_hand
        self._broken[invariant] = None
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(Violation(invariant, at, objects, trace_id, detail, by_hand))

    def _report_answer(self, line: Line, detail: str) -> None:
        """Report an answer that arrived after `line`, which is about something else."""
        self._report("I13", msgspec.structs.replace(line, obj=None, trace_id=""), detail)

    def _report_stream(self, objects: tuple[str, ...], detail: str) -> None:
        self.report("I15", self._newest.mono_ns / 1e9 if self._newest is not None else 0.0, objects, detail)

    def _report(self, invariant: str, line: Line, detail: str) -> None:
        objects = (text_of(line),) if line.obj else ()
        self.report(invariant, line.mono_ns / 1e9, objects, detail, line.trace_id, line)
