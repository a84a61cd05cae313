"""A stage as it is played: read, checked, its expressions and templates compiled. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kubelet.stages.jq import Query
from kubelet.stages.selectors import Selector
from kubelet.stages.templates import Template

PatchType = Literal["json", "merge", "strategic"]


@dataclass(frozen=True)
class Delay:
    """When a stage is played after it matched, seconds; `…_from` win over the numbers where they give something."""

    duration_s: float | None = None
    duration_from: Query | None = None
    jitter_s: float | None = None
    jitter_from: Query | None = None


@dataclass(frozen=True)
class Event:
    """An Event to record about the object."""

    type: str
    reason: str
    message: Template


@dataclass(frozen=True)
class Finalizers:
    """What becomes of the object's finalizers; `empties` goes before `adds`."""

    adds: tuple[str, ...] = ()
    removes: tuple[str, ...] = ()
    empties: bool = False


@dataclass(frozen=True)
class Patch:
    """A patch made by a template; `root` is the field it is about."""

    template: Template
    type: PatchType = "strategic"
    subresource: str = ""
    root: str = ""


@dataclass(frozen=True)
class Step:
    """One thing a stage does, or several in this order: event, finalizers, deletion, patch."""

    event: Event | None = None
    finalizers: Finalizers | None = None
    deletes: bool = False
    patch: Patch | None = None


@dataclass(frozen=True)
class Stage:
    """One stage of the life of `kind`. `source`: the file it is from."""

    name: str
    source: str
    kind: str
    selector: Selector
    steps: tuple[Step, ...]
    weight: int = 0
    weight_from: Query | None = None
    delay: Delay | None = None
    is_immediate: bool = False
