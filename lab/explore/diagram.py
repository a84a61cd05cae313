"""Show how a break came about: the relevant messages and events of one run, as a sequence diagram in text. Pure.

Relevant are the objects that broke, the objects of the messages held back, and the pods that met
them on the same node. A message stands where it arrives; a held one stands also where it was sent.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lab.explore.deliveries import REPLY, RUNNER, SERVER, Delivery, display_name, is_about, pathname
from lab.explore.recorder import Break, Recording
from services.runtime.components import component_of
from services.telemetry.eventlog import Line

MESSAGE, SENT, ARRIVED, NOTE, BROKE = "message", "sent", "arrived", "note", "broke"
_AT_ONCE = (MESSAGE, ARRIVED, NOTE, SENT)
STEPS_MAX = 48
BEFORE_S = 0.02
"""Seconds that the diagram begins before the first held message."""
_MEETINGS = ("sched.bind_call", "kubelet.admit", "kubelet.reject", "kubelet.start", "kubelet.stop")
_SHOWN_AS_MESSAGES = (
    "sched.assume", "sched.bind_call", "sched.bind_result", "kubelet.session", "kubelet.checkpoint",
    "kubelet.teardown_done", "kubelet.unbind_call", "kubelet.unbind_result",
)  # fmt: skip
"""Events that are left out, because the messages of the same step already show them."""
_FAULTS = ("fault.inject", "fault.heal")
_COMPONENTS = ("scheduler", SERVER, "controllers", "claim-controller", "kubelet")


@dataclass(frozen=True)
class Step:
    """One row. `at_s`: seconds of the event log's clock. `held_s`: seconds for which the message was held back.
    `kind`: message; sent and arrived, for a held message; note, at one component; broke, the end.
    """

    at_s: float
    kind: str
    source: str
    target: str
    text: str
    held_s: float = 0.0


def steps_of(run: Recording, broken: Break) -> list[Step]:
    """Return the steps that led to the break, in order of time.

    Above STEPS_MAX rows the middle is left out, except messages that were held back.
    """
    names = _names(run, broken)
    begin_s = min((d.sent_s for d in run.held), default=broken.at_s - 1.0) - BEFORE_S
    names |= _who_met(run.lines, names, begin_s, broken.at_s)
    steps: list[Step] = []
    for delivery in run.deliveries:
        if begin_s <= delivery.sent_s <= broken.at_s and _is_shown(delivery, names):
            steps.extend(_message(delivery))
    for line in run.lines:
        if begin_s <= line.mono_ns / 1e9 <= broken.at_s and _is_noted(line, names):
            steps.append(Step(line.mono_ns / 1e9, NOTE, line.comp, line.comp, _note(line)))
    # What a message causes in the same instant stands below it, and what is sent on that account below that.
    steps.sort(key=lambda step: (round(step.at_s, 6), _AT_ONCE.index(step.kind)))
    last = Step(broken.at_s, BROKE, "", "", f"{broken.broke}: {broken.detail}")
    return [*_shorten_steps(steps), last]


def _names(run: Recording, broken: Break) -> frozenset[str]:
    of_objects = [name.partition(" ")[2] for name in broken.objects]
    held = [path.partition("/")[2] for delivery in run.held for path in delivery.about]
    return frozenset(filter(None, (*of_objects, *held)))


def _who_met(lines: Iterable[Line], names: frozenset[str], begin_s: float, end_s: float) -> frozenset[str]:
    """Return the pods that were bound to, admitted by or refused by a node that one of the objects was on."""
    met = [line for line in lines if line.ev in _MEETINGS and line.obj and begin_s <= line.mono_ns / 1e9 <= end_s]
    nodes = frozenset(line.node for line in met if line.node and _concerns(line, names))
    return frozenset(pathname(line.obj) for line in met if line.obj and line.node in nodes)


def _is_shown(delivery: Delivery, names: frozenset[str]) -> bool:
    if delivery.held_s > 0:
        return True
    if not is_about(delivery, names) or all(path.startswith(("events", "leases")) for path in delivery.about):
        return False
    if delivery.way == REPLY:
        return not delivery.text.startswith("2") and delivery.component != RUNNER
    if delivery.receiver == SERVER:
        return not delivery.text.startswith(("get ", "list ", "watch "))
    return component_of(delivery.receiver) in ("scheduler", "kubelet")


def _is_noted(line: Line, names: frozenset[str]) -> bool:
    if line.ev in _FAULTS:
        return True
    return line.ev.startswith(("sched.", "kubelet.")) and line.ev not in _SHOWN_AS_MESSAGES and _concerns(line, names)


def _concerns(line: Line, names: frozenset[str]) -> bool:
    return line.obj is not None and pathname(line.obj) in names


def _message(delivery: Delivery) -> list[Step]:
    text = short(delivery.text)
    if delivery.held_s <= 0:
        return [Step(delivery.arrives_s, MESSAGE, delivery.sender, delivery.receiver, text)]
    return [
        Step(delivery.sent_s, SENT, delivery.sender, delivery.receiver, text, delivery.held_s),
        Step(delivery.arrives_s, ARRIVED, delivery.sender, delivery.receiver, text, delivery.held_s),
    ]


def short(text: str) -> str:
    """Return a message's words without the parts that all messages share: the namespace `default`, a kind's group."""
    words = []
    for word in text.split(" "):
        head, *rest = word.split("/")
        if rest and "." in head:
            head = head.partition(".")[0]
        words.append("/".join([head, *(part for place, part in enumerate(rest) if place or part != "default")]))
    return " ".join(words)


def _note(line: Line) -> str:
    name = line.obj["name"] if line.obj else str(line.data.get("target", ""))
    details = [str(line.data[key]) for key in ("outcome", "reason", "what") if line.data.get(key)]
    on = f" on {line.node}" if line.node else ""
    return f"{line.ev} {name}{on}{': ' if details else ''}{', '.join(details)}"


def _shorten_steps(steps: list[Step]) -> list[Step]:
    """Leave out rows in the middle, never those of messages that were held back."""
    if len(steps) <= STEPS_MAX:
        return steps
    half = STEPS_MAX // 2
    middle = steps[half:-half]
    kept = [step for step in middle if step.kind in (SENT, ARRIVED)]
    gap = Step(middle[0].at_s, NOTE, "", "", f"… {len(middle) - len(kept)} more")
    return [*steps[:half], gap, *kept, *steps[-half:]]


def participants(steps: Iterable[Step]) -> list[str]:
    """Return the participants in order: the runner, schedulers, the API server, the others."""
    seen = dict.fromkeys(name for step in steps for name in (step.source, step.target) if name)

    def place(name: str) -> tuple[int, str]:
        order = (RUNNER, *_COMPONENTS)
        known = name if name == RUNNER else component_of(name)
        return order.index(known) if known in order else len(order), name

    return sorted(seen, key=place)


_TIME_WIDTH = 11
_COLUMN_MIN, _COLUMN_MAX = 18, 40


def text_diagram(steps: Sequence[Step]) -> list[str]:
    """Return the lines of a diagram: one column for each participant, time downwards."""
    names = participants(steps)
    width = _width(steps, names)
    where = {name: _TIME_WIDTH + 2 + place * width for place, name in enumerate(names)}
    titles = "".join(title[: width - 1].ljust(width) for title in map(display_name, names))
    lines = [" " * (_TIME_WIDTH + 2) + titles.rstrip()]
    for step in steps:
        row = list(f"{step.at_s:{_TIME_WIDTH - 2}.4f} s".ljust(where[names[-1]] + 1 if names else _TIME_WIDTH))
        for x in where.values():
            row[x] = "│"
        _draw(row, step, where)
        lines.append("".join(row).rstrip())
    return lines


def _width(steps: Sequence[Step], names: Sequence[str]) -> int:
    if len(names) < 2:
        return _COLUMN_MAX
    place = {name: number for number, name in enumerate(names)}
    needed = [
        -(-(len(_label(step)) + 5) // max(1, abs(place[step.source] - place[step.target])))
        for step in steps
        if step.kind in (MESSAGE, SENT, ARRIVED)
    ]
    return min(max(needed, default=_COLUMN_MIN), _COLUMN_MAX)


def _label(step: Step) -> str:
    return f"held {hold_text(step.held_s)}: {step.text}" if step.kind == ARRIVED else step.text


def hold_text(seconds: float) -> str:
    """Return a hold's duration as text, `150 ms` or `1.5 s`."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def _draw(row: list[str], step: Step, where: dict[str, int]) -> None:
    if step.kind in (NOTE, BROKE):
        x = where.get(step.source, _TIME_WIDTH + 2)
        mark = "✗ " if step.kind == BROKE else "• "
        text = mark + step.text
        row.extend(" " * (x - len(row)))  # of an undisturbed break no column may be there
        row[x : x + len(text)] = list(text)
        return
    left, right = sorted((where[step.source], where[step.target]))
    component = right - left - 1
    line = "╌" if step.kind == SENT else "━" if step.kind == ARRIVED else "─"
    label = _label(step)
    label = label if len(label) <= component - 3 else label[: max(0, component - 4)] + "…"
    drawn = f" {label} ".center(component, line)
    if step.kind == SENT:
        half = "▷" if step.target == max(step.source, step.target, key=lambda name: where[name]) else "◁"
    else:
        half = "▶" if where[step.target] > where[step.source] else "◀"
    drawn = drawn[:-1] + half if half in "▶▷" else half + drawn[1:]
    row[left + 1 : right] = list(drawn)
