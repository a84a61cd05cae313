"""What a package offers as a measure, and what that is given: the contract of entry points in `keplab.measures`.

    from lab.scenarios.measures.entry import MeasureEntry, RunView

    def spare_nodes(run: RunView) -> float | None:
        return float(sum(not node["pods"] for node in run.objects("nodes")))

    MEASURE = MeasureEntry(name="spare_nodes", meaning="Nodes without pods", objects=("nodes",), compute=spare_nodes)

    [project.entry-points."keplab.measures"]
    spare_nodes = "my_package:MEASURE"

A scenario has it computed by `measure spare_nodes`. Being installed computes nothing: a run is measured the same,
whatever is installed. What `compute` raises is reported with the measure's name, and the run goes on without its
value."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lab.scenarios.measures.history import PodHistory
from lab.scenarios.measures.register import Better, Measure


class RunView(Protocol):
    """A run that is over. Objects and lines are as `lab.scenarios.measures.recorded` describes them."""

    @property
    def seconds(self) -> float:
        """How long it took, in the mesh's time."""

    @property
    def pods(self) -> Sequence[PodHistory]:
        """All pods that ever were, in order of creation."""

    def objects(self, plural: str) -> list[dict[str, Any]]:
        """Return the objects of a declared resource that were stored at the end. Raises: ValueError for another."""

    def created(self, plural: str) -> list[dict[str, Any]]:
        """Return all objects of a declared resource that ever were. Raises: ValueError for another."""

    def lines(self, event: str) -> list[dict[str, Any]]:
        """Return the event log's lines of a declared event. Raises: ValueError for another."""


@dataclass(frozen=True, kw_only=True)
class MeasureEntry:
    """A measure. `objects` and `versions`: plurals of the resources that it reads, the latter with all their versions;
    `lines`: events of the event log; nothing else is kept. `compute` returns None where there is no value."""

    name: str
    meaning: str
    compute: Callable[[RunView], float | None]
    unit: str = ""
    better: Better = ""
    objects: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()

    def measure(self, source: str) -> Measure:
        """Return its entry in the register; `source`: the package."""
        return Measure(self.name, self.unit, self.meaning, self.better, source)
