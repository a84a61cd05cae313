"""Names of messages that stay valid when the order changes. Pure.

A schedule refers to *the second time the scheduler is shown that pod victim changed*, not to the 1,407th
message. After a held message the numbers of all later messages differ, but not what they are about.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from lab.scenarios.simulation.traffic import Carried
from services.api.errors import UNREADABLE, ApiError
from services.api.wire import Request, WatchEvent, WatchRequest

REQUEST, REPLY, WATCH = "request", "reply", "watch"
SERVER = "apiserver"
RUNNER = "observer"
"""Component that runs the scenario: its messages are the scenario itself, and are never held back."""


@dataclass(frozen=True)
class Delivery:
    """One message on one link. Times are virtual seconds since the mesh began.

    `names`: names for schedules, one for each change in a batch of a watch. `about`: the objects it concerns,
    as `pods/default/p`. `text`: the same in few words. `stream`: messages of one stream never overtake each other.
    `due_s`: its time of arrival without a hold.
    """

    names: tuple[str, ...]
    component: str
    way: str
    stream: str
    about: tuple[str, ...]
    text: str
    sent_s: float
    due_s: float
    arrives_s: float

    @property
    def sender(self) -> str:
        """Component that sent the message."""
        return self.component if self.way == REQUEST else SERVER

    @property
    def receiver(self) -> str:
        """Component that receives the message."""
        return SERVER if self.way == REQUEST else self.component

    @property
    def held_s(self) -> float:
        """Seconds for which the message was held back."""
        return self.arrives_s - self.due_s


class _Metadata(msgspec.Struct):
    name: str = ""
    generateName: str = ""  # noqa: N815  (the wire's spelling)


class _ObjectName(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


_named = msgspec.json.Decoder(_ObjectName)


def path_of(resource: str, namespace: str, name: str) -> str:
    """Return an object's path, `pods/default/p`; `nodes/n1` if it has no namespace, `pods` for all objects."""
    return "/".join(filter(None, (resource, namespace if name else "", name)))


def _call(request: Request) -> tuple[str, str]:
    name = request.name
    if not name and request.verb == "create" and request.body:
        try:
            metadata = _named.decode(request.body).metadata
            name = metadata.name or metadata.generateName
        except UNREADABLE:
            name = ""
    about = path_of(request.resource, request.namespace, name)
    return f"{request.verb} {about}{f'/{request.subresource}' if request.subresource else ''}", about


class Namer:
    """Namer of messages: the n-th message with the same words between the same two components is called `words #n`."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def name(self, component: str, way: str, what: Carried, sent_s: float, due_s: float) -> Delivery:
        """Return the message as a delivery that is not held back."""
        stream, parts = _parts(component, way, what)
        sign = ">" if way == REQUEST else "<"
        names = tuple(self._numbered_name(f"{component} {sign} {words}") for words, _ in parts)
        about = tuple(dict.fromkeys(path for _, path in parts if path))
        text = ", ".join(words for words, _ in parts[:3]) + (f" and {len(parts) - 3} more" if len(parts) > 3 else "")
        return Delivery(names, component, way, stream, about, text, sent_s, due_s, due_s)

    def _numbered_name(self, words: str) -> str:
        count = self._counts[words] = self._counts.get(words, 0) + 1
        return f"{words} #{count}"


def _parts(component: str, way: str, what: Carried) -> tuple[str, list[tuple[str, str]]]:
    """Return the stream of a message, and words and object of each of its parts."""
    match what:
        case Request():
            return f"{component} {way}", [_call(what)]
        case WatchRequest():
            return f"{component} {way}", [(f"watch {what.resource}", what.resource)]
        case list():
            return f"{component} {way} {what[0].resource if what else ''}", [_change(event) for event in what]
        case ApiError() | None:
            return f"{component} {way} end", [("end of watch", "")]
        case _:
            request, response = what
            words, about = _call(request)
            return f"{component} {way}", [(f"{response.code} {words}", about)]


def _change(event: WatchEvent) -> tuple[str, str]:
    path = path_of(event.resource, event.namespace, event.name)
    return f"{event.type} {path}", path if event.name else ""


def pathname(obj: dict[str, Any]) -> str:
    """Return the name among deliveries of an object of the event log, without its kind: `default/p`."""
    return "/".join(filter(None, (obj["ns"], obj["name"])))


def is_about(delivery: Delivery, names: frozenset[str]) -> bool:
    """Return whether a message concerns one of the objects, given as `default/p` or, without a namespace, `n1`."""
    return any(path.partition("/")[2] in names for path in delivery.about)


def display_name(name: str) -> str:
    """Return a component's name, or a delivery's, for people: the runner is called the scenario."""
    return f"scenario{name.removeprefix(RUNNER)}" if name.startswith(RUNNER) else name
