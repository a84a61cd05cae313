"""Base of every invariant: a class that receives some of the log's lines and reports violations."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kubelet.timers import CALL_DEADLINE_S
from lab.scenarios.invariants.view import Commit, View
from services.api.switches import Switches
from services.telemetry.eventlog import Line

NO_CLAIMS = "there are no resource claims"
NOTHING_PREPARED = "no device was prepared for a claim"

Report = Callable[[Line, str], None]
"""Callback for a violation: the line that broke the rule, and a sentence with the two conflicting values."""


class Calm:
    """Time since which no fault is active; grace periods are counted from it. A link that lost messages counts
    as healed only after `CALL_DEADLINE_S`, when the last sender has noticed.
    """

    def __init__(self) -> None:
        self._faults: dict[str, bool] = {}
        self._since_s = 0.0

    def take(self, line: Line) -> None:
        """Note a fault, a heal or a start. A killed process is healed by its next start."""
        target = str(line.data.get("target", "")) if line.ev != "proc.start" else line.comp
        if target.startswith("clock/"):
            return  # a wall clock that is off excuses nothing (FM-A13)
        if line.ev == "fault.inject":
            self._faults[target] = any(line.data.get(name) for name in ("cut", "loss", "drop"))
            return
        loses = self._faults.pop(target, False)
        self._since_s = max(self._since_s, line.mono_ns / 1e9 + (CALL_DEADLINE_S if loses else 0.0))

    def lasted_s(self, since_s: float, now_s: float) -> float:
        """Return the seconds without faults for which a condition that began at `since_s` has lasted."""
        return 0.0 if self._faults else now_s - max(since_s, self._since_s)


@dataclass(frozen=True)
class Context:
    """State shared by all checks. `is_volatile`: the store forgets everything when its process ends."""

    switches: Switches
    view: View
    calm: Calm
    is_volatile: bool = False


class Check:
    """One invariant. `events`: the lines it subscribes to; empty means all of them.

    `kinds`: the kinds whose commits it gets; empty means all. Each commit is already part of the view.
    `why_not`: afterwards, why this invariant was not judged in this run; empty when it was.
    """

    id = ""
    events: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    why_not = ""

    def __init__(self, context: Context) -> None:
        self.context, self.view, self.switches = context, context.view, context.switches

    def take(self, line: Line, report: Report) -> None:
        """Judge one line to which it subscribes; one that subscribes to all gets those of commits here, too."""

    def on_commit(self, line: Line, commit: Commit, report: Report) -> None:
        """Judge the change that a `store.commit` line to which it subscribes records, unless it was known before."""

    def tick(self, line: Line, report: Report) -> None:
        """Judge the whole state, about once a second of the log's time; `line` is the newest."""

    def unfinished_text(self, now_s: float) -> str:
        """Return what is wrong but within its grace when the log ends, so that it cannot be judged; empty if nothing
        is.
        """
        return ""


class Wrong(NamedTuple):
    """A condition that is wrong now: the text to report after the grace, and the text for a log that ends before."""

    key: Hashable
    report: str
    unfinished: str


class Graced(Check, ABC):
    """An invariant that may be broken for `grace_s`; only time without faults counts. `since`: start of each
    breach, by key.
    """

    grace_s = 0.0

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.since: dict[Hashable, float] = {}

    @abstractmethod
    def wrong(self, now_s: float) -> Iterator[Wrong]:
        """Yield all conditions that are wrong now, each with its key in `since`."""

    def note(self, keys: Iterable[Hashable], now_s: float) -> None:
        """Set which keys are wrong now: new ones since `now_s`, missing ones no longer."""
        self.since = {key: self.since.get(key, now_s) for key in keys}

    def tick(self, line: Line, report: Report) -> None:
        """Report each condition that has been wrong for longer than the grace."""
        now_s = line.mono_ns / 1e9
        for each in list(self.wrong(now_s)):
            if self.context.calm.lasted_s(self.since[each.key], now_s) > self.grace_s:
                report(line, each.report)
                self.on_reported(each.key, now_s)

    def on_reported(self, key: Hashable, now_s: float) -> None:
        """Restart the grace of a key that was reported."""
        self.since[key] = now_s

    def unfinished_text(self, now_s: float) -> str:
        """Return the first condition that is wrong, with its duration and the allowed duration; empty if none is."""
        for each in self.wrong(now_s):
            lasted_s = max(0.0, self.context.calm.lasted_s(self.since[each.key], now_s))
            lasted = f"for {lasted_s:.1f} s without faults of {self.grace_s:g} s allowed"
            return f"the run ended within the grace: {each.unfinished}, {lasted}"
        return ""


class Departed:
    """Uids of removed objects, kept for a while, because lines about them may still come."""

    def __init__(self, kept: int = 10_000) -> None:
        self._kept = kept
        self._uids: dict[str, None] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._uids

    def add(self, uid: str) -> str:
        """Add a uid; return the uid that is dropped for it, or ""."""
        self._uids[uid] = None
        if len(self._uids) <= self._kept:
            return ""
        oldest = next(iter(self._uids))
        del self._uids[oldest]
        return oldest


def uid_of(line: Line) -> str:
    """Return the uid of the line's object, or ""."""
    return line.obj.get("uid", "") if line.obj else ""
