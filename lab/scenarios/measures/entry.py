"""Interface of measures from packages: the contract of entry points in the group `keplab.measures`.

    from lab.scenarios.measures.entry import MeasureEntry, RunView

    def spare_nodes(run: RunView) -> float | None:
        return float(sum(not node["pods"] for node in run.objects("nodes")))

    MEASURE = MeasureEntry(name="spare_nodes", meaning="Nodes without pods", objects=("nodes",), compute=spare_nodes)

    [project.entry-points."keplab.measures"]
    spare_nodes = "my_package:MEASURE"

A scenario requests the measure by `measure spare_nodes`. An installed package alone changes nothing: the
measures of a run do not depend on what is installed. An exception from `compute` is reported with the
measure's name, and the run continues without its value.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lab.scenarios.measures.history import PodHistory
from lab.scenarios.measures.register import Better, Measure


class RunView(Protocol):
    """A finished run. `lab.scenarios.measures.recorded` describes the shape of objects and lines."""

    @property
    def seconds(self) -> float:
        """Duration of the run in seconds of the mesh's time."""

    @property
    def pods(self) -> Sequence[PodHistory]:
        """All pods that ever existed, in order of creation."""

    def objects(self, plural: str) -> list[dict[str, Any]]:
        """Return the objects of a declared resource that were stored at the end. Raises: ValueError for another."""

    def created(self, plural: str) -> list[dict[str, Any]]:
        """Return all objects of a declared resource that ever existed. Raises: ValueError for another."""

    def lines(self, event: str) -> list[dict[str, Any]]:
        """Return the event log's lines of a declared event. Raises: ValueError for another."""


@dataclass(frozen=True, kw_only=True)
class MeasureEntry:
    """A measure. `compute` returns None where there is no value.

    `objects` and `versions`: plurals of the resources that it reads, the latter with all their versions;
    `lines`: events of the event log that it reads. Nothing else is kept.
    """

    name: str
    meaning: str
    compute: Callable[[RunView], float | None]
    unit: str = ""
    better: Better = ""
    objects: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()

    def measure(self, source: str) -> Measure:
        """Return the measure's entry in the register; `source`: the package."""
        return Measure(self.name, self.unit, self.meaning, self.better, source)
