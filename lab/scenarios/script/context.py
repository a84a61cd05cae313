"""The state of a scenario that runs, what all verbs share, and how a function becomes a verb."""

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
from lab.scenarios.script.declaration import Argument, Declaration, explained
from lab.scenarios.script.scenario import Scenario, Step
from services.client.client import Client


class Freshness(Protocol):
    """What keeps the observer as new as what is judged from it (`lab.scenarios.freshness`)."""

    async def reach(self, resources: Sequence[str], limit_s: float = ...) -> bool:
        """Return whether the observer has seen of these resources what the store has now."""

    def note_late(self, resources: Sequence[str], line: str) -> None:
        """Have the result say that a line was judged although the last `reach` had failed."""


@dataclass
class ScenarioContext:
    """The state of a scenario that runs. `remembered`: names given by `remember`, used as `$name`."""

    mesh: Mesh
    client: Client
    observer: Observer
    scenario: Scenario
    chance: Random
    """Names requests. A mesh remembers those of earlier runs, so it differs between runs of one mesh."""
    freshness: Freshness
    remembered: dict[str, str] = field(default_factory=dict)
    answers: list[tuple[Step, bool, str]] = field(default_factory=list)
    background: list[asyncio.Task[None]] = field(default_factory=list)
    playing: list[tuple[Step, asyncio.Task[Played]]] = field(default_factory=list)
    """Recordings that are played beside other lines."""
    planned: list[tuple[Step, asyncio.Task[None]]] = field(default_factory=list)
    """Faults that wait for their moment; a scenario in which one never came did not run as written."""


Perform = Callable[[ScenarioContext, Step], Coroutine[None, None, None]]
Check = Callable[[Scenario, Step], None]
"""Raises ValueError for a mistake of a line that can be seen before anything starts."""


async def _nothing(context: ScenarioContext, step: Step) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Verb(Declaration):
    """An act: what its line may say, what it does, and what is looked at before anything starts."""

    perform: Perform = _nothing
    check: Check | None = None


def verb(topic: str, *arguments: Argument, name: str = "", **declared: Any) -> Callable[[Perform], Verb]:
    """Have a function be the verb of its name; its docstring is what the reference says.

    `declared` are the fields of `Verb`: options, others, text, block, form, check.
    """

    def made(perform: Perform) -> Verb:
        meaning, notes = explained(perform.__doc__)
        called = name or perform.__name__.replace("_", "-")
        return Verb(called, topic, meaning, notes, arguments, perform=perform, **declared)

    return made


def verbs_in(module: dict[str, Any]) -> dict[str, Verb]:
    """Return the verbs that a module has made, by name, in their order."""
    return {each.name: each for each in module.values() if isinstance(each, Verb)}


def beside(scenario: Scenario, name: str) -> Path:
    """Return the path of a file beside the scenario. Raises: ValueError when it lies elsewhere."""
    folder = Path(scenario.path).parent
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ValueError(f"{name!r} lies outside the scenario's folder")
    return path


def file_of(scenario: Scenario, name: str) -> Block:
    """Return a file that stands inside the scenario, or beside it. Raises: ValueError when there is none."""
    if (inside := scenario.files.get(scenario.beside(name))) is not None:
        return inside
    path = beside(scenario, name)
    try:
        return Block(scenario.beside(name), path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"{name}: there is no such file beside the scenario: {said}") from None


def substitute(context: ScenarioContext, text: str) -> str:
    """Return the text with `$name` replaced by what was remembered. Raises: ValueError."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in context.remembered:
            raise ValueError(f"${match[1]} was not remembered")
        return context.remembered[match[1]]

    return re.sub(r"\$([a-z_]+)", value, text)
