"""Which objects a stage is for: labels, annotations and requirements on what an expression gives. Pure.

Two questions are asked of a selector. `matches`: may the stage be next, for the object as it is. `chooses`:
does the stage move this object at all, whatever state it is in: the same without the requirements about what
changes in the course of a life. Source: KWOK `SelectorRequirement`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kubelet.stages.jq import Query
from services.api.meta import Document

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_OF_LIFE = (("status",), ("metadata", "deletionTimestamp"), ("metadata", "finalizers"))
"""Where the course of a life shows: requirements on these do not say whose life it is."""


@dataclass(frozen=True)
class Requirement:
    """What an expression must give: one of the values, none of them, something that is not null, or nothing."""

    query: Query
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, document: Document) -> bool:
        """Whether the object is so; an expression that does not fit the object gives nothing."""
        found = self.query.values(document) or ()
        match self.operator:
            case "In":
                return any(_text(each) in self.values for each in found)
            case "NotIn":
                return not any(_text(each) in self.values for each in found)
            case "Exists":
                return any(each is not None for each in found)
        return all(each is None for each in found)

    @property
    def is_lasting(self) -> bool:
        """Whether the answer stays the same for the whole life of an object."""
        root = self.query.root
        return bool(root) and not any(all(a == b for a, b in zip(root, part, strict=False)) for part in _OF_LIFE)


@dataclass(frozen=True)
class Selector:
    """All parts must hold; no parts select everything."""

    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    requirements: tuple[Requirement, ...] = ()

    def matches(self, document: Document) -> bool:
        """Whether the stage may be next for the object as it is."""
        return self._is_labelled(document) and all(each.matches(document) for each in self.requirements)

    def chooses(self, document: Document) -> bool:
        """Whether the stage is about this object at all, at some time of its life."""
        return self._is_labelled(document) and all(
            each.matches(document) for each in self.requirements if each.is_lasting
        )

    def _is_labelled(self, document: Document) -> bool:
        metadata = document.get("metadata") or {}
        labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
        return all(labels.get(k) == v for k, v in self.labels) and all(
            annotations.get(k) == v for k, v in self.annotations
        )


def _text(value: Any) -> str | None:
    """Return a text, bool or whole number as selectors compare it; None for what no value can equal."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return value if isinstance(value, str) else None
