"""Expectations: sentences of a scenario, parsed and judged against the stored objects.

    expect [within 5s | always | for 30s] count RESOURCE [FILTER…] OP NUMBER
    expect [within 5s | always | for 30s] each RESOURCE [FILTER…] PATH OP VALUE
    expect [within 5s | always | for 30s] created RESOURCE [name=GLOB] OP NUMBER

FORMS, MODES, OPERATORS and PATHS below define each part, and lines are parsed by them. Pure.
"""

import fnmatch
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from apiserver_fake.registry.schema.schemas import ANYTHING, shape_of
from lab.scenarios.script.declaration import Argument, Declaration
from lab.scenarios.script.value_types import parse_duration, suggestion, words_of
from services.api.meta import Document, Key, Resource
from services.api.quantity import nano
from services.api.resources import resources
from services.kwok.definitions import resources as kwok_resources

TOPIC: Final = "Expectations"
_DOT = re.compile(r"\.(?![^\[]*\])")
"""A dot outside of brackets."""
_OPS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_SHORT = {
    "name": "metadata.name",
    "namespace": "metadata.namespace",
    "phase": "status.phase",
    "node": "spec.nodeName",
    "reason": "status.reason",
}
MODES: Final[Mapping[str, str]] = {
    "": "now",
    "within DURATION": "as soon as it holds; it fails when that time is over",
    "for DURATION": "during all of that time, while the scenario waits",
    "always": "from here to the end of the scenario, which goes on meanwhile",
}
OPERATORS: Final[Mapping[str, str]] = {
    **dict.fromkeys(_OPS, "as numbers or quantities when both are, else as texts"),
    "~": "contains; `each` only",
}
PATHS: Final[Mapping[str, str]] = {
    **{short: f"`{path}`" for short, path in _SHORT.items()},
    "label.KEY": "a label",
    "annotation.KEY": "an annotation",
    "spec.nodeName": "any dotted path into the object",
    "conditions[Ready].status": "a list's member by its type, name or key",
    "containers[0]": "a list's member by its place",
    "allocatable[example.com/gpu]": "a key with dots of its own",
}
_RESOURCE = Argument("RESOURCE", "plural, singular or short name: `pods`, `po`, `deployments.apps`")
_FILTER = Argument("PATH=GLOB|GLOB", "only objects that have one of these there", count="any")
_OP, _NUMBER = Argument("OP", "a comparison"), Argument("NUMBER", "a whole number")
FORMS: Final[Mapping[str, Declaration]] = {
    each.name: each
    for each in (
        Declaration("count", TOPIC, "How many objects are stored.", arguments=(_RESOURCE, _FILTER, _OP, _NUMBER)),
        Declaration(
            "each",
            TOPIC,
            "What every object that is stored has at a path; false when there is none.",
            arguments=(_RESOURCE, _FILTER, Argument("PATH", "what is compared"), _OP, Argument("VALUE", "with what")),
        ),
        Declaration(
            "created",
            TOPIC,
            "How many objects were ever created; the one filter is `name`.",
            arguments=(_RESOURCE, Argument("name=GLOB", "only those of such a name", count="optional"), _OP, _NUMBER),
        ),
    )
}
"""Forms of an expectation. Each line is `expect`, a mode and one of these."""
USAGE: Final = "expect [within T | for T | always] count|each|created RESOURCE … OP VALUE"


class World(Protocol):
    """The objects that an expectation is judged against."""

    def documents(self, resource: str) -> Iterable[Document]:
        """Return the stored objects of a resource (wire name)."""

    def created_names(self, resource: str) -> Sequence[str]:
        """Return the names of all objects ever created of a resource, repeats included; it only grows."""


class ChangingWorld(World, Protocol):
    """A world that says what has changed, so that a judgement looks at nothing else."""

    def keys(self, resource: str) -> Iterable[Key]:
        """Return the keys of the stored objects, in the order of `documents`. Raises: NotFound."""

    def document(self, resource: str, key: Key) -> Document | None:
        """Return one stored object; None if there is none."""

    def changed_since(self, resource: str, change: int) -> tuple[Iterable[Key], int]:
        """Return the keys of what has changed since that change, and the number of the newest change."""


@dataclass(frozen=True)
class Filter:
    """Condition that `path` has one of the values (globs)."""

    path: str
    values: tuple[str, ...]

    def matches(self, document: Document) -> bool:
        """Return whether the document passes."""
        return self.accepts(_text(lookup(document, self.path)))

    def accepts(self, text: str) -> bool:
        """Return whether one of the values matches this text."""
        return any(fnmatch.fnmatchcase(text, value) for value in self.values)


@dataclass(frozen=True)
class Expectation:
    """A parsed expectation. `mode`: now, within, for or always. `what`: count, each or created."""

    text: str
    mode: str
    duration_s: float
    what: str
    resource: str
    filters: tuple[Filter, ...]
    path: str
    op: str
    value: str

    def judge(self, world: World) -> tuple[bool, str]:
        """Return whether it holds, and what was found, from all that is stored."""
        if self.what == "created":
            count = sum(self.selects_name(name) for name in world.created_names(self.resource))
            return self.holds_for(count), f"{count} created"
        documents = [document for document in world.documents(self.resource) if self.selects(document)]
        if self.what == "count":
            return self.holds_for(len(documents)), f"{len(documents)} found"
        seen = [self.value_in(document) for document in documents]
        wrong = [each for each in seen if not self.allows(each)]
        return bool(seen) and not wrong, _text_of_some(wrong or seen)

    def selects(self, document: Document) -> bool:
        """Return whether an object passes all filters."""
        return all(each.matches(document) for each in self.filters)

    def selects_name(self, name: str) -> bool:
        """Return whether a created object of this name is counted."""
        return all(each.accepts(name) for each in self.filters)

    def holds_for(self, count: int) -> bool:
        """Return whether this number of objects is as wanted."""
        return _OPS[self.op](count, int(self.value))

    def value_in(self, document: Document) -> tuple[str, str]:
        """Return the object's name, and the text at the path that `each` compares."""
        return document["metadata"]["name"], _text(lookup(document, self.path))

    def allows(self, seen: tuple[str, str]) -> bool:
        """Return whether an object with that name and text is as wanted."""
        return compare(seen[1], self.op, self.value)


class Judging:
    """Repeated judgement of one expectation over one world; only objects that have changed are examined again.

    Invariant: after `holds`, everything here is what `Expectation.judge` would find at that moment.
    """

    def __init__(self, expectation: Expectation, world: ChangingWorld) -> None:
        """Examine nothing yet; the first `holds` examines all objects."""
        self._expectation, self._world = expectation, world
        self._change: int | None = None
        self._created = self._named = 0
        self._selected: dict[Key, tuple[str, str]] = {}
        """Objects that pass the filters, for `each` with their names and texts at the path."""
        self._wrong: dict[Key, None] = {}

    def judge(self) -> tuple[bool, str]:
        """Return whether it holds now, and what was found."""
        return self.holds(), self.finding()

    def holds(self) -> bool:
        """Examine what has changed, and return whether it holds now."""
        wanted = self._expectation
        if wanted.what == "created":
            names = self._world.created_names(wanted.resource)
            self._named += sum(wanted.selects_name(names[i]) for i in range(self._created, len(names)))
            self._created = len(names)
            return wanted.holds_for(self._named)
        changed, self._change = self._to_examine()
        for key in changed:
            self._examine(key)
        if wanted.what == "count":
            return wanted.holds_for(len(self._selected))
        return bool(self._selected) and not self._wrong

    def finding(self) -> str:
        """Return what the last `holds` found, as a text."""
        wanted = self._expectation
        if wanted.what == "created":
            return f"{self._named} created"
        if wanted.what == "count":
            return f"{len(self._selected)} found"
        keys = self._wrong or self._selected
        return _text_of_some([self._selected[key] for key in self._world.keys(wanted.resource) if key in keys])

    def _to_examine(self) -> tuple[Iterable[Key], int]:
        resource = self._expectation.resource
        if self._change is not None:
            return self._world.changed_since(resource, self._change)
        keys = self._world.keys(resource)
        return keys, self._world.changed_since(resource, 0)[1]

    def _examine(self, key: Key) -> None:
        wanted = self._expectation
        document = self._world.document(wanted.resource, key)
        self._wrong.pop(key, None)
        if document is None or not wanted.selects(document):
            self._selected.pop(key, None)
            return
        seen = wanted.value_in(document) if wanted.what == "each" else ("", "")
        self._selected[key] = seen
        if wanted.what == "each" and not wanted.allows(seen):
            self._wrong[key] = None


def _text_of_some(seen: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name}: {value or '(empty)'}" for name, value in seen[:3]) or "none found"


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def compare(seen: str, op: str, wanted: str) -> bool:
    """Compare as numbers or quantities when both are, else as texts; `~` is: contains."""
    if op == "~":
        return wanted in seen
    for number in (float, nano):
        try:
            return _OPS[op](number(seen), number(wanted))
        except ValueError:
            continue
    return _OPS[op](seen, wanted)


def lookup(document: Any, path: str) -> Any:
    """Follow a dotted path; `conditions[Ready].status` picks a list member by type or name, `[0]` by index.

    In a map, `[KEY]` is a key that contains dots: `status.allocatable[example.com/gpu]`. `label.KEY` and
    `annotation.KEY` take the rest of the path as one key.
    """
    if path not in document:  # an Event has a reason of its own
        path = _SHORT.get(path, path)
    for prefix, field in (("label.", "labels"), ("annotation.", "annotations")):
        if path.startswith(prefix):
            return document.get("metadata", {}).get(field, {}).get(path[len(prefix) :])
    current = document
    for part in _DOT.split(path):
        name, _, pick = part.partition("[")
        if name:
            if not isinstance(current, Mapping):
                return None
            current = current.get(name)
        if pick:
            current = _pick(current, pick.rstrip("]"))
        if current is None:
            return None
    return current


def _pick(items: Any, pick: str) -> Any:
    if isinstance(items, Mapping):
        return items.get(pick)
    if not isinstance(items, list):
        return None
    if pick.isdigit():
        return items[int(pick)] if int(pick) < len(items) else None
    return next((i for i in items if pick in (i.get("type"), i.get("name"), i.get("key"))), None)


def resource_named(name: str) -> Resource | None:
    """Return the resource of a wire name, plural, singular or short name."""
    known = (r for r in resources().values() if name in (r.name, r.plural, r.singular, *r.short_names))
    own = (r for r in kwok_resources().values() if name in (r.name, r.plural, r.singular))
    return next(known, None) or next(own, None)


def parse_expectation(text: str) -> Expectation:
    """Parse an expectation. Raises: ValueError saying what was expected where."""
    words = words_of(text)
    mode, seconds = "now", 0.0
    if words and words[0] in ("within", "for"):
        if len(words) < 2:
            raise ValueError(f"{words[0]!r} wants a duration")
        mode, seconds = words[0], parse_duration(words[1])
        words = words[2:]
    elif words and words[0] == "always":
        mode, words = "always", words[1:]
    if len(words) < 4 or words[0] not in FORMS:
        near = suggestion(words[0], (*FORMS, "within", "for", "always")) if words and words[0] not in FORMS else ""
        raise ValueError(f"want: {USAGE}{near}")
    what, resource = words[0], resource_named(words[1])
    if resource is None:
        raise ValueError(no_resource(words[1]))
    op, value = words[-2], words[-1]
    if op not in OPERATORS:
        raise ValueError(f"{op!r} is no comparison; want one of {' '.join(OPERATORS)}")
    middle = words[2:-2]
    path = ""
    if what == "each":
        if not middle:
            raise ValueError("`each` wants a path before the comparison, such as spec.nodeName")
        path = middle.pop()
    elif op not in _OPS:
        raise ValueError(f"{op!r}: `{what}` compares numbers; want one of {' '.join(_OPS)}")
    elif not value.isdigit():
        raise ValueError(f"{value!r}: `{what}` compares with a whole number")
    if path:
        check_path(resource, path)
    filters = []
    for word in middle:
        name, sign, values = word.partition("=")
        if not sign:
            raise ValueError(f"{word!r} is no filter; want path=value")
        if what == "created" and name != "name":
            raise ValueError(f"{word!r}: `created` selects by name alone; want name=GLOB, or `count`")
        check_path(resource, name)
        filters.append(Filter(name, tuple(values.split("|"))))
    return Expectation(text, mode, seconds, what, resource.name, tuple(filters), path, op, value)


def check_path(resource: Resource, path: str) -> None:
    """Raise ValueError for a path that no object of the resource can have: such an expectation is meaningless."""
    if path in _SHORT or path.startswith(("label.", "annotation.")):
        return
    shape, above = shape_of(resource.api_version, resource.kind), ""
    for part in _DOT.split(path):
        name, sign, _ = part.partition("[")
        known = None if shape.values is not None or shape.keeps_unknown else shape.fields
        if name and known is not None and name not in known:
            near = suggestion(name, (*known, *(() if above else PATHS)))
            raise ValueError(f"{resource.plural} have no field {above}{name}{near}")
        shape = shape.member(name) if name else shape
        shape = (shape.items or shape.values or ANYTHING) if sign else shape
        above += f"{part}."


def no_resource(name: str) -> str:
    """Return the message that there is no resource of that name, with similar names."""
    known = [word for each in resources().values() for word in (each.name, each.plural, each.singular)]
    return f"no resource is called {name!r}{suggestion(name, known)}; there are: {', '.join(resources())}"
