"""Snapshots and recordings of other tools that a scenario names, beside it or inside it. Pure but for reading."""

from pathlib import Path, PurePath

from services.exchange.reading import Source
from services.scenarios.script.scenario import Scenario


def source_of(scenario: Scenario, name: str) -> Source:
    """Return the file of that name. Raises: ValueError when it lies elsewhere, or there is none.

    A link beside the scenario may lead elsewhere: recordings are large, and a link is made on purpose.
    """
    path = scenario.beside(name)
    if (inside := scenario.files.get(path)) is not None:
        return Source(Path(path), name, inside.text.encode())
    if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
        raise ValueError(f"{name!r} lies outside the scenario's folder")
    if not Path(path).is_file():
        raise ValueError(f"{name}: there is no such file beside the scenario")
    return Source(Path(path), name)
