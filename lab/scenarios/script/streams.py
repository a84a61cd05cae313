"""Snapshots and recordings of other tools that a scenario names, beside it or inside it. Pure but for reading."""

from functools import lru_cache
from pathlib import Path, PurePath
from typing import Final

from lab.exchange.format import Reading, nodes_created
from lab.exchange.reading import Source
from lab.scenarios.script.scenario import Scenario
from services.api.meta import Document

WALL_S: Final = 1_767_225_600.0
"""2026-01-01T00:00:00Z: start of recordings that do not state their own start."""
STREAMS_KEPT = 4
"""Number of cached streams; the arms and seeds of a comparison play the same few."""


def coming_nodes(scenario: Scenario) -> tuple[Document, ...]:
    """Return the Nodes that streams create while the scenario plays them, by name; the first of each name.
    Raises: ValueError: a stream cannot be read.
    """
    nodes: dict[str, Document] = {}
    for step in scenario.steps:
        if step.verb != "play":
            continue
        source = source_of(scenario, step.args[0])
        stamp = 0 if source.data is not None else source.path.stat().st_mtime_ns
        options = tuple(sorted((step.values.get("options") or {}).items()))
        for document in _coming(source, stamp, step.values.get("format") or "", options):
            nodes.setdefault(str(document["metadata"]["name"]), document)
    return tuple(nodes[name] for name in sorted(nodes))


@lru_cache(maxsize=STREAMS_KEPT)
def _coming(source: Source, _stamp: int, name: str, options: tuple[tuple[str, str], ...]) -> tuple[Document, ...]:
    return tuple(nodes_created(source, Reading(began_wall_s=WALL_S, options=dict(options)), name))


def source_of(scenario: Scenario, name: str) -> Source:
    """Return the file of that name. Raises: ValueError if it is outside the scenario's folder, or does not
    exist.

    A symbolic link beside the scenario may point elsewhere: recordings are large, and a link is made on
    purpose.
    """
    path = scenario.beside(name)
    if (inside := scenario.files.get(path)) is not None:
        return Source(Path(path), name, inside.text.encode())
    if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
        raise ValueError(f"{name!r} lies outside the scenario's folder")
    if not Path(path).is_file():
        raise ValueError(f"{name}: there is no such file beside the scenario")
    return Source(Path(path), name)
