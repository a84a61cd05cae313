"""Alarms while the page watches: broken invariants, and the course of the faults that the page injected.

The auditor is that of scenarios. It reads the event log from its beginning. If lines are missing, or there are
too many to read again, nothing is judged, and the page says why.
"""

from collections.abc import Sequence
from sys import intern
from typing import Any, Final

import msgspec

from lab.recordings import frames
from lab.recordings.format import COMMIT
from lab.scenarios.invariants.auditor import Auditor, Violation
from lab.ui.lines import Entry
from lab.ui.live import Live
from services.api.switches import Switches
from services.runtime.faults.breaking import FaultOrder
from services.telemetry.eventlog import Line

LINES_MAX: Final = 400_000
"""Largest event log, in lines when the page begins, that is judged."""
OBJECTS_MAX: Final = 20_000
"""Largest number of objects in a mesh that is judged: the invariants' state takes a kilobyte for each."""
WINDOW: Final = 5_000
"""Number of past changes of a kind that invariants can look back on."""
FAULTS_KEPT: Final = 50
TOO_LARGE: Final = f"the mesh has more than {OBJECTS_MAX:,} objects"
NEWEST: Final = 20
READY: Final = 1
NOT_JUDGED: Final = {
    "I24": "RBAC objects decide as well what clients of this mesh may do, and the log does not have them"
}
"""Invariants that cannot be judged in a mesh that serves clients, and why."""
ACKNOWLEDGED: Final = "I13"
"""The invariant that acknowledged writes are stored: each violation is a lost write."""


_AGAIN: Final = ("kind", "ns", "name", "uid", "node", "phase", "type", "verb", "subresource")


def _share_texts(line: Line) -> None:
    """Have the texts of a commit be held once that come again in every line about an object: they are kept for as many
    versions as are judged."""
    if line.ev != COMMIT:
        return
    fields: dict[str, Any]
    for fields in (line.obj or {}, line.data):
        for name in _AGAIN:
            if type(value := fields.get(name)) is str:
                fields[name] = intern(value)


class Fault:
    """One injected fault: its time, the time at which the mesh showed its effect, and the time of full recovery."""

    def __init__(
        self, wanted: FaultOrder, at_s: float, process: dict[str, Any], ready: frozenset[str], lost: int
    ) -> None:
        self.wanted, self.at_s, self._ready, self._lost_before = wanted, at_s, ready, lost
        self._restarts = process.get("restarts", 0)
        self.noticed_s: float | None = None
        self.healed_s: float | None = None
        self.lost = 0

    @property
    def is_over(self) -> bool:
        """Whether the mesh has recovered."""
        return self.healed_s is not None

    def look(self, live: Live, now_s: float, lost: int) -> bool:
        """Compare the fault with the present state of the mesh; return whether anything is new."""
        before = (self.noticed_s, self.healed_s, self.lost)
        self.lost = lost - self._lost_before
        process = process_named(live, self.wanted.target)
        is_down = not process.get("ready", False)
        has_restarted = process.get("restarts", 0) > self._restarts
        away = self._ready - ready_nodes(live)
        is_noticed = bool(away) or (self.wanted.action == "kill" and (is_down or has_restarted))
        if self.noticed_s is None and is_noticed:
            self.noticed_s = now_s
        is_in_force = any(each["target"] == self.wanted.target for each in live.status.get("faults", ()))
        is_back = not is_down and not away and not is_in_force and process.get("state") == "Running"
        if self.wanted.action == "kill":
            is_back = is_back and has_restarted
        if self.healed_s is None and is_back and now_s > self.at_s:
            self.healed_s = now_s
        return before != (self.noticed_s, self.healed_s, self.lost)

    def document(self) -> dict[str, Any]:
        """Return the fault with its times in seconds since the injection; None: not yet."""
        return {
            "target": self.wanted.target,
            "action": self.wanted.action,
            "at": round(self.at_s, 3),
            "noticed_s": None if self.noticed_s is None else round(self.noticed_s - self.at_s, 3),
            "healed_s": None if self.healed_s is None else round(self.healed_s - self.at_s, 3),
            "writes_lost": self.lost,
        }


def process_named(live: Live, name: str) -> dict[str, Any]:
    """Return the last known state of a process; {} if there is none with that name."""
    none: dict[str, Any] = {}
    return next((each for each in live.status["processes"] if each["name"] == name), none)


def ready_nodes(live: Live) -> frozenset[str]:
    """Return the names of the nodes that are ready."""
    columns, strings = live.model.columns("nodes"), live.model.strings
    return frozenset(strings[name] for name in columns["name"][columns["ready"] == READY] if name)


class Alarms:
    """Judge of the growing event log, and observer of the injected faults."""

    def __init__(self, live: Live, objects: int = 0) -> None:
        """`objects`: the number of objects that the mesh already has."""
        self._live, self._objects = live, objects
        self._auditor: Auditor | None = None
        self.why_not = "" if live.place.access.events is not None else "the event log is not to be seen from here"
        self._reported = 0
        self.violations: list[Violation] = []
        self.faults: list[Fault] = []
        live.on_lines.append(self._on_lines)

    def _on_lines(self, entries: Sequence[Entry]) -> None:
        """Judge lines, in the order of their time."""
        if self.why_not:
            return
        model = self._live.model
        if max(self._objects, len(model.pods.slots) + len(model.nodes.slots)) > OBJECTS_MAX:
            self._end(TOO_LARGE)
            return
        if self._auditor is None:
            engine = self._live.status.get("engine", "sqlite")
            switches = Switches.parse(self._live.place.access.switches)
            self._auditor = Auditor(
                switches, is_volatile=engine == "memory", without=frozenset(NOT_JUDGED), window=WINDOW
            )
        auditor, feed = self._auditor, self._live.line_feed
        for entry in entries:
            _share_texts(entry.line)
            auditor.take(entry.line)
        if feed is not None and feed.missing:
            self._end(f"lines of the event log are missing: {feed.missing}")
        elif auditor.objects > OBJECTS_MAX:
            self._end(TOO_LARGE)
        elif not self._live.is_history_read and auditor.lines > LINES_MAX:
            self._end(f"the event log had more than {LINES_MAX:,} lines when the page began")
        if self.why_not:
            return
        for violation in auditor.violations[self._reported :]:
            self.violations.append(violation)
            alarm = {"alarm": "violation", **msgspec.to_builtins(violation)}
            self._live.announce(frames.ALARM, alarm, f"violation {len(self.violations)}")
        self._reported = len(auditor.violations)

    def _end(self, why: str) -> None:
        """Judge nothing any more."""
        self.why_not, self._auditor = why, None

    @property
    def lost_write_count(self) -> int:
        """Number of writes that were acknowledged and lost."""
        return sum(each.invariant == ACKNOWLEDGED and not each.by_hand for each in self.violations)

    def follow_fault(self, wanted: FaultOrder) -> None:
        """Start to follow a fault that was injected now."""
        live = self._live
        fault = Fault(wanted, live.now_s, process_named(live, wanted.target), ready_nodes(live), self.lost_write_count)
        # Another fault of this process ends the count of the one before.
        self.faults = [each for each in self.faults if each.is_over or each.wanted.target != wanted.target]
        self.faults = [*self.faults[-FAULTS_KEPT + 1 :], fault]

    def look(self) -> None:
        """Compare the faults that are not over with the present state of the mesh."""
        for fault in self.faults:
            if not fault.is_over and fault.look(self._live, self._live.now_s, self.lost_write_count):
                found = {"alarm": "fault", **fault.document()}
                self._live.announce(frames.ALARM, found, f"fault {fault.wanted.target} {fault.at_s}")

    def document(self) -> dict[str, Any]:
        """Return what is judged, the violations, and the faults."""
        auditor = self._auditor
        return {
            "judged": not self.why_not,
            "why_not": self.why_not,
            "lines": auditor.lines if auditor is not None else 0,
            "violations": sum(not each.by_hand for each in self.violations),
            "by_hand": sum(each.by_hand for each in self.violations),
            "newest": msgspec.to_builtins(self.violations[-NEWEST:]),
            "not_judged": {**NOT_JUDGED, **(auditor.not_judged if auditor is not None else {})},
            "faults": [each.document() for each in self.faults],
        }
