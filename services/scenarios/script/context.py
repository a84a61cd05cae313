"""The state of a scenario that runs, and what all verbs share."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path

from services.client.client import Client
from services.scenarios.mesh import Mesh
from services.scenarios.observer import Observer
from services.scenarios.script.scenario import Step


@dataclass
class ScenarioContext:
    """The state of a scenario that runs. `remembered`: names given by `remember`, used as `$name`."""

    mesh: Mesh
    client: Client
    observer: Observer
    folder: Path
    remembered: dict[str, str] = field(default_factory=dict)
    answers: list[tuple[Step, bool, str]] = field(default_factory=list)
    background: list[asyncio.Task[None]] = field(default_factory=list)
    planned: list[tuple[Step, asyncio.Task[None]]] = field(default_factory=list)
    """Faults that wait for their moment; a scenario in which one never came did not run as written."""


Verb = Callable[[ScenarioContext, Step], Coroutine[None, None, None]]


def named(*verbs: Verb) -> dict[str, Verb]:
    """Return the verbs by name: each is called as its function is."""
    return {verb.__name__.replace("_", "-"): verb for verb in verbs}


def one(step: Step, what: str) -> str:
    """Return the only argument. Raises: ValueError saying what was wanted."""
    if len(step.args) != 1:
        raise ValueError(f"{step.verb} wants {what}")
    return step.args[0]


def beside(context: ScenarioContext, name: str) -> Path:
    """Return the path of a file beside the scenario. Raises: ValueError when it lies elsewhere."""
    path = (context.folder / name).resolve()
    if not path.is_relative_to(context.folder.resolve()):
        raise ValueError(f"{name!r} lies outside the scenario's folder")
    return path


def substitute(context: ScenarioContext, text: str) -> str:
    """Return the text with `$name` replaced by what was remembered. Raises: ValueError."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in context.remembered:
            raise ValueError(f"${match[1]} was not remembered")
        return context.remembered[match[1]]

    return re.sub(r"\$([a-z_]+)", value, text)
