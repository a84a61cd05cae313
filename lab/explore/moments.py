"""Moments of a run: the lines of its event log that EVENT selects. Pure.

sched.bind_call                       every line of that event
ev=sched.bind_call,obj=p              of those, the ones about p (a glob; also default/p, Pod default/p)
kubelet.start,node=n1,n=2             the second one on that node
sched.attempt,data.outcome=scheduled  by a field of the line's data
"""

import difflib
import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.telemetry.eventlog import Line

FIELDS = ("comp", "identity", "node", "obj")


class EventError(ValueError):
    """EVENT cannot be read, or matches nothing in the run; the message says what could be used."""


@dataclass(frozen=True)
class Event:
    """Filter of event-log lines. `number`: only the n-th line that matches, from 1; 0: all of them."""

    text: str
    name: str
    filters: tuple[tuple[str, str], ...] = ()
    number: int = 0

    def matches(self, line: Line) -> bool:
        """Return whether the line passes the filter; `number` is ignored."""
        return line.ev == self.name and all(_passes(line, field, value) for field, value in self.filters)


def parse_event(text: str) -> Event:
    """Return the event filter in a text. Raises: EventError."""
    name, number = "", 0
    filters: list[tuple[str, str]] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        field, sign, value = part.partition("=")
        if not sign or field == "ev":
            if name:
                raise EventError(f"{text!r}: both {name} and {value or field} are named; want one event")
            name = value or field
        elif field == "n":
            if not value.isdecimal() or int(value) < 1:
                raise EventError(f"{text!r}: n={value}: want a number from 1")
            number = int(value)
        elif field in FIELDS or field.startswith("data."):
            filters.append((field, value))
        else:
            raise EventError(f"{text!r}: no filter {field!r}; there are: {', '.join((*FIELDS, 'data.KEY', 'n'))}")
    if not name:
        hint = "for example sched.bind_call; --around list shows those of the scenario"
        raise EventError(f"{text!r}: want an event, {hint}")
    return Event(text, name, tuple(filters), number)


def _passes(line: Line, field: str, wanted: str) -> bool:
    if field == "obj":
        return any(fnmatch.fnmatchcase(name, wanted) for name in _object_names(line))
    if field.startswith("data."):
        value = line.data.get(field.removeprefix("data."))
        shown = str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
        return fnmatch.fnmatchcase(shown, wanted)
    return fnmatch.fnmatchcase(getattr(line, field), wanted)


def _object_names(line: Line) -> tuple[str, ...]:
    if line.obj is None:
        return ("",)
    kind, ns, name = line.obj["kind"], line.obj["ns"], line.obj["name"]
    path = f"{ns}/{name}" if ns else name
    return name, path, f"{kind} {path}", f"{kind.lower()}/{name}", f"{kind}/{name}"


def moments(event: Event, lines: Iterable[Line]) -> list[Line]:
    """Return the selected lines in order. Raises: EventError when there are none."""
    seen = list(lines)
    matches = [line for line in seen if event.matches(line)]
    if event.number:
        matches = matches[event.number - 1 : event.number]
    if not matches:
        raise EventError(_nothing(event, seen))
    return matches


def _nothing(event: Event, lines: Sequence[Line]) -> str:
    names = sorted({line.ev for line in lines})
    same = [line for line in lines if line.ev == event.name]
    if not same:
        near = difflib.get_close_matches(event.name, names, 4, 0.5)
        near += [name for name in names if name not in near and event.name in name][:4]
        hint = f"did you mean {', '.join(near)}?" if near else "--around list shows those that do"
        return f"no event {event.name!r} happens in this scenario; {hint}"
    matching = sum(event.matches(line) for line in same)
    if matching:
        times = "once" if matching == 1 else f"{matching:,} times"
        return f"{event.text!r}: it happens {times}, there is no number {event.number}"
    about = list(dict.fromkeys(_object_names(line)[1 if line.obj else 0] for line in same))
    shown = ", ".join(filter(None, about[:6])) or "no object"
    return f"{event.text!r}: none of the {len(same)} lines of {event.name} matches; they are about {shown}"


@dataclass(frozen=True)
class Nameable:
    """One event of a run: its count, first time (seconds of the log), components, and an example of its object."""

    name: str
    count: int
    first_s: float
    components: tuple[str, ...]
    example: str


def nameable(lines: Iterable[Line]) -> list[Nameable]:
    """Return the events that `--around` can name, by name."""
    by_name: dict[str, list[Line]] = {}
    for line in lines:
        by_name.setdefault(line.ev, []).append(line)
    return [
        Nameable(
            name,
            len(found),
            found[0].mono_ns / 1e9,
            tuple(sorted({line.comp for line in found})),
            next((_object_names(line)[2] for line in found if line.obj is not None), ""),
        )
        for name, found in sorted(by_name.items())
    ]
