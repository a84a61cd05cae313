"""The state of a running scenario, which all verbs share, and the decorator that makes a function a verb."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol

from lab.exchange.player import Played
from lab.scenarios.mesh import Mesh
from lab.scenarios.observer import Observer
from lab.scenarios.script.blocks import Block
from lab.scenarios.script.declaration import Argument, Declaration, split_docstring
from lab.scenarios.script.scenario import Scenario, Step
from services.client.client import Client


class Freshness(Protocol):
    """Interface that keeps the observer's view fresh enough for each judgement (`lab.scenarios.freshness`)."""

    async def reach(self, resources: Sequence[str], limit_s: float = ...) -> bool:
        """Wait until the observer has the store's current version of these resources; return whether it did within
        `limit_s`.
        """

    def note_late(self, resources: Sequence[str], line: str) -> None:
        """Record in the result that a line was judged although the last `reach` had failed."""


@dataclass
class ScenarioContext:
    """The state of a running scenario. `remembered`: values stored by `remember`, used as `$name`."""

    mesh: Mesh
    client: Client
    observer: Observer
    scenario: Scenario
    chance: Random
    """Random numbers for request ids. A mesh remembers ids of earlier runs, so it differs between runs of one mesh."""
    freshness: Freshness
    remembered: dict[str, str] = field(default_factory=dict)
    answers: list[tuple[Step, bool, str]] = field(default_factory=list)
    background: list[asyncio.Task[None]] = field(default_factory=list)
    playing: list[tuple[Step, asyncio.Task[Played]]] = field(default_factory=list)
    """Recordings that are played concurrently with other lines."""
    planned: list[tuple[Step, asyncio.Task[None]]] = field(default_factory=list)
    """Faults that wait for their site; if one never comes, the scenario did not run as written."""


Perform = Callable[[ScenarioContext, Step], Coroutine[None, None, None]]
Check = Callable[[Scenario, Step], None]
"""Check of a line before anything starts. Raises ValueError for a mistake."""


async def _nothing(context: ScenarioContext, step: Step) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Verb(Declaration):
    """An act: the syntax of its line, its action, and its check before anything starts."""

    perform: Perform = _nothing
    check: Check | None = None


def verb(topic: str, *arguments: Argument, name: str = "", **declared: Any) -> Callable[[Perform], Verb]:
    """Make a function the verb of its name; its docstring is the text of the reference.

    `declared` are the fields of `Verb`: options, others, text, block, form, check.
    """

    def make_verb(perform: Perform) -> Verb:
        meaning, notes = split_docstring(perform.__doc__)
        called = name or perform.__name__.replace("_", "-")
        return Verb(called, topic, meaning, notes, arguments, perform=perform, **declared)

    return make_verb


def verbs_in(module: dict[str, Any]) -> dict[str, Verb]:
    """Return the verbs defined in a module, by name, in their order."""
    return {each.name: each for each in module.values() if isinstance(each, Verb)}


def beside(scenario: Scenario, name: str) -> Path:
    """Return the path of a file beside the scenario. Raises: ValueError if it is outside the scenario's folder."""
    folder = Path(scenario.path).parent
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ValueError(f"{name!r} lies outside the scenario's folder")
    return path


def file_of(scenario: Scenario, name: str) -> Block:
    """Return a file from inside the scenario, or from beside it. Raises: ValueError when there is none."""
    if (inside := scenario.files.get(scenario.beside(name))) is not None:
        return inside
    path = beside(scenario, name)
    try:
        return Block(scenario.beside(name), path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        message = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"{name}: there is no such file beside the scenario: {message}") from None


def substitute(context: ScenarioContext, text: str) -> str:
    """Return the text with each `$name` replaced by its remembered value. Raises: ValueError."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in context.remembered:
            raise ValueError(f"${match[1]} was not remembered")
        return context.remembered[match[1]]

    return re.sub(r"\$([a-z_]+)", value, text)
