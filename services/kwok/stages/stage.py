"""A stage ready to play: parsed and checked, with compiled expressions and templates. Pure.

A selector answers two questions. `matches`: may the stage be next, for the object in its current state.
`chooses`: may the stage apply to this object at all, in any state. The latter ignores requirements on fields
that change during the object's life. Source: KWOK `SelectorRequirement`.
"""

import importlib
import re
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from services.api.meta import Document
from services.kwok.stages.jq import Query
from services.kwok.stages.templates import Template

EventType = Literal["Normal", "Warning"]
PatchType = Literal["json", "merge", "strategic"]
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_CHANGES = re.compile(r"\bstatus\b|deletionTimestamp|finalizers")
"""Pattern of names in CEL expressions that change during an object's life."""
KINDS = {"Pod": "v1", "Node": "v1", "ResourceSlice": "resource.k8s.io/v1"}
"""Kinds that kubelets' stages move, with group and version; a controller moves all other kinds."""
_OF_LIFE = (("status",), ("metadata", "deletionTimestamp"), ("metadata", "finalizers"))
"""Fields that change during an object's life; requirements on them do not identify the object."""


@dataclass(frozen=True)
class Requirement:
    """Required result of an expression: one of the values, none of them, a non-null result, or no result."""

    query: Query
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, document: Document, _wall_s: float = 0.0) -> bool:
        """Whether the object meets the requirement; an expression that does not fit the object has no result."""
        results = self.query.values(document) or ()
        match self.operator:
            case "In":
                return any(_text(each) in self.values for each in results)
            case "NotIn":
                return not any(_text(each) in self.values for each in results)
            case "Exists":
                return any(each is not None for each in results)
        return all(each is None for each in results)

    @property
    def is_lasting(self) -> bool:
        """Whether the result stays the same for the whole life of an object."""
        root = self.query.root
        return bool(root) and not any(all(a == b for a, b in zip(root, part, strict=False)) for part in _OF_LIFE)


class CelExpression:
    """A CEL expression about the object, `self`, with KWOK's functions. Raises: ValueError from the constructor."""

    def __init__(self, text: str) -> None:
        # By name: CEL is large, and few stages use it.
        self._kwok = importlib.import_module("services.kwok.expressions")
        self._expressions = self._kwok.Expressions(variables=("self",))
        self.text = text
        self._expressions.compile(text)

    def value(self, document: Document, wall_s: float) -> Any:
        """Return the result for the object. Raises: ValueError."""
        metadata = document.get("metadata") or {}
        words = (self.text, *(metadata.get(name, "") for name in ("namespace", "name", "resourceVersion")))
        moment = self._kwok.Moment(wall_s, self._kwok.Draws(words))
        return self._expressions.value(self.text, {"self": document}, moment)

    def values(self, document: Document, wall_s: float) -> list[Any] | None:
        """Return the result as a jq query would, times and durations as texts; None if the evaluation fails."""
        try:
            return [self._kwok.as_json(self.value(document, wall_s))]
        except ValueError:
            return None


@dataclass(frozen=True)
class CelRequirement:
    """A CEL expression about the object that must be true; a failed evaluation counts as false."""

    expression: CelExpression
    is_lasting: bool

    @classmethod
    def read(cls, text: str) -> "CelRequirement":
        """Parse the requirement. Raises: ValueError."""
        return cls(CelExpression(text), _CHANGES.search(text) is None)

    def matches(self, document: Document, wall_s: float = 0.0) -> bool:
        """Whether the object meets the requirement."""
        try:
            return self.expression.value(document, wall_s) is True
        except ValueError:
            return False


@dataclass(frozen=True)
class Selector:
    """Selector of a stage. All parts must hold; without parts it selects everything."""

    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    requirements: tuple[Requirement | CelRequirement, ...] = ()

    def matches(self, document: Document, wall_s: float = 0.0) -> bool:
        """Whether the stage may be next for the object in its current state."""
        return self._is_labelled(document) and all(each.matches(document, wall_s) for each in self.requirements)

    def chooses(self, document: Document) -> bool:
        """Whether the stage may apply to this object at some time of its life."""
        return self._is_labelled(document) and all(
            each.matches(document) for each in self.requirements if each.is_lasting
        )

    def _is_labelled(self, document: Document) -> bool:
        metadata = document.get("metadata") or {}
        labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
        return all(labels.get(k) == v for k, v in self.labels) and all(
            annotations.get(k) == v for k, v in self.annotations
        )


@dataclass(frozen=True)
class Delay:
    """Delay from match to play, in seconds; results of the `…_from` expressions take precedence over the numbers."""

    duration_s: float | None = None
    duration_from: Query | CelExpression | None = None
    jitter_s: float | None = None
    jitter_from: Query | CelExpression | None = None


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of a document's parts: camelCase names; unknown fields are an error that names them.

    Raises: ValueError from the constructor, beginning with the field below this part: `.template: want a template`.
    """


class Event(Part, frozen=True):
    """An Event to record about the object."""

    type: EventType = "Normal"
    reason: str = ""
    message: Template = Template("")

    def __post_init__(self) -> None:
        if not self.reason:
            raise ValueError(".reason: an event wants a reason")


class Finalizer(Part, frozen=True):
    """A finalizer to add or remove."""

    value: str


class Finalizers(Part, frozen=True):
    """Changes of the object's finalizers; `empty` applies before `add`."""

    add: tuple[Finalizer, ...] | None = None
    remove: tuple[Finalizer, ...] | None = None
    empty: bool = False

    def after(self, held: list[str]) -> list[str]:
        """Return the new finalizers of an object that has `held`."""
        removed = {each.value for each in self.remove or ()}
        kept = [] if self.empty else [name for name in held if name not in removed]
        return kept + [name for name in dict.fromkeys(each.value for each in self.add or ()) if name not in kept]


class Impersonation(Part, frozen=True):
    """The user that a patch impersonates."""

    username: str

    def __post_init__(self) -> None:
        if not self.username:
            raise ValueError(".username: want the name of a user")


class Patch(Part, frozen=True):
    """A patch from a template; `root` is the field it applies to. `type` None: strategic."""

    template: Template = Template("")
    type: PatchType | None = None
    subresource: str = ""
    root: str = ""
    impersonation: Impersonation | None = None

    def __post_init__(self) -> None:
        if not self.template.text.strip():
            raise ValueError(".template: want a template")


class Apply(Part, frozen=True):
    """A separate object that a stage creates or replaces: a ResourceSlice of the node."""

    template: Template = Template("")

    def __post_init__(self) -> None:
        if not self.template.text.strip():
            raise ValueError(".template: want a template")


class Step(Part, frozen=True):
    """One step of a stage; its parts run in this order: event, finalizers, deletion, patch, apply."""

    event: Event | None = None
    finalizers: Finalizers | None = None
    delete: bool = False
    patch: Patch | None = None
    apply: Apply | None = None


@dataclass(frozen=True)
class Stage:
    """One stage of the lifecycle of `kind`."""

    name: str
    kind: str
    selector: Selector
    steps: tuple[Step, ...]
    weight: int = 0
    weight_from: Query | CelExpression | None = None
    delay: Delay | None = None
    is_immediate: bool = False
    api_version: str = "v1"

    @property
    def ref(self) -> tuple[str, str]:
        """The apiVersion and kind of the objects it moves."""
        return self.api_version, self.kind

    @property
    def is_of_kubelets(self) -> bool:
        """Whether kubelets move its objects."""
        return KINDS.get(self.kind) == self.api_version

    @property
    def writes_status(self) -> bool:
        """Whether it changes the object's status."""
        return any(step.patch is not None and step.patch.subresource == "status" for step in self.steps)


def _text(value: Any) -> str | None:
    """Return a text, bool or whole number as selectors compare it; None for what no value can equal."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return value if isinstance(value, str) else None
