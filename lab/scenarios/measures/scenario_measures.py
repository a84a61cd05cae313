"""The measures that a scenario states, from their lines to their values. Pure.

    measure placed = pods.filter(p, p.status.phase == "Running").size()
    measure spare_nodes

The first is an expression in CEL (`expression`), the second is a package's measure (`packages`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lab.scenarios.measures.entry import MeasureEntry
from lab.scenarios.measures.history import History, PodHistory
from lab.scenarios.measures.packages import package_measure
from lab.scenarios.measures.placement import Placement
from lab.scenarios.measures.queue_pools import QueuePools
from lab.scenarios.measures.recorded import Followed, Recorded
from lab.scenarios.measures.register import Measure
from services.api.resources import resources

if TYPE_CHECKING:
    from lab.scenarios.measures.expression import Expression

_TIMES: Final = {
    "bound": "bound_s",
    "running": "running_s",
    "ready": "ready_s",
    "failed": "failed_s",
    "rejected": "rejected_s",
    "deleted": "leaving_s",
}
"""Names in a pod's `at` besides `created` and `gone`, with the fields of its history."""


@dataclass(frozen=True)
class ScenarioMeasure:
    """A measure that a scenario states: an expression, or a package's entry."""

    measure: Measure
    how: Expression | MeasureEntry

    @property
    def required_history(self) -> Followed:
        """Data of a run that must be kept for the measure."""
        how = self.how
        if isinstance(how, MeasureEntry):
            return _required_history(how.objects, how.objects, how.versions, how.lines)
        named = how.at_end | how.created
        return _required_history(how.at_end, how.created, named if how.has_versions else (), how.events)


def _required_history(
    at_end: Iterable[str], created: Iterable[str], versions: Iterable[str], events: Iterable[str]
) -> Followed:
    from lab.scenarios.measures.expression import plurals

    def wire(names: Iterable[str]) -> frozenset[str]:
        return frozenset(plurals()[name] for name in names)

    return Followed(wire(at_end), wire(created), wire(versions), frozenset(events))


def stated_measure(text: str, followed: Callable[[str], bool]) -> ScenarioMeasure:
    """Parse the measure in the rest of a line. `followed`: whether scenarios follow a resource (wire name).

    Raises: ValueError that names the measure, the word and what is legal.
    """
    # Only here: CEL is large, and few scenarios state measures.
    from lab.scenarios.measures.expression import parse_measure

    measure, expression = parse_measure(text)
    scenario_measure: ScenarioMeasure
    if expression is None:
        entry, about = package_measure(measure.name)
        scenario_measure = ScenarioMeasure(about, entry)
    else:
        scenario_measure = ScenarioMeasure(measure, expression)
    wanted = scenario_measure.required_history
    for name in sorted(wanted.at_end | wanted.created | wanted.versions):
        if not followed(name):
            raise ValueError(f"measure {measure.name}: scenarios do not follow {resources()[name].plural}")
    return scenario_measure


def wanted_by(measures: Iterable[ScenarioMeasure]) -> Followed:
    """Return the data that must be kept for all of the measures."""
    all_of_them = [each.required_history for each in measures]
    return Followed(
        frozenset().union(*(each.at_end for each in all_of_them)),
        frozenset().union(*(each.created for each in all_of_them)),
        frozenset().union(*(each.versions for each in all_of_them)),
        frozenset().union(*(each.events for each in all_of_them)),
    )


@dataclass(frozen=True)
class FinishedRun:
    """Implementation of `entry.RunView`, which also provides the variables of expressions. `started_s`: on the
    log's clock.
    """

    history: History
    placement: Placement
    queue: QueuePools
    recorded: Recorded
    started_s: float

    @property
    def seconds(self) -> float:
        """Duration of the run in seconds."""
        return self.recorded.duration_s

    @property
    def pods(self) -> Sequence[PodHistory]:
        """All pods that ever existed."""
        return tuple(self.history.pods.values())

    def objects(self, plural: str) -> list[dict[str, Any]]:
        """Return the objects that were stored at the end. Raises: ValueError for a resource that is not followed."""
        return self._with_more(plural, self.recorded.at_end(self._followed_resource(plural)))

    def created(self, plural: str) -> list[dict[str, Any]]:
        """Return all objects that ever existed. Raises: ValueError for a resource that is not followed."""
        return self._with_more(plural, self.recorded.created(self._followed_resource(plural)))

    def lines(self, event: str) -> list[dict[str, Any]]:
        """Return the lines of an event. Raises: ValueError for an event that is not kept."""
        if event not in self.recorded.wanted.events:
            raise ValueError(f"it reads lines of {event!r}, which it does not declare in `lines`")
        return self.recorded.lines(event, self.started_s)

    def _followed_resource(self, plural: str) -> str:
        from lab.scenarios.measures.expression import plurals

        name = plurals().get(plural, plural)
        if name not in self.recorded.followed:
            raise ValueError(f"it reads {plural!r}, which it does not declare in `objects`")
        return name

    def _with_more(self, plural: str, objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if plural == "pods":
            return [self._pod(each) for each in objects]
        if plural == "nodes":
            return [{**each, **self.placement.node(each["metadata"]["name"])} for each in objects]
        return objects

    def _pod(self, document: dict[str, Any]) -> dict[str, Any]:
        uid = document["metadata"]["uid"]
        known = self.history.pods.get(uid)
        if known is None:
            return {**document, "role": "", "nodes": [], "queue": dict(self.queue.of(uid))}
        times = {name: at for name, of in _TIMES.items() if (at := getattr(known, of)) is not None}
        return {
            **document,
            "at": {**document["at"], **times},
            "role": known.role,
            "nodes": list(known.nodes),
            "queue": dict(self.queue.of(uid)),
        }

    def values(self, measures: Iterable[ScenarioMeasure]) -> tuple[dict[str, float | None], dict[str, str]]:
        """Return the values of the measures by name, and the error for each that could not be computed."""
        figures: dict[str, float | None] = {}
        errors: dict[str, str] = {}
        if not (chosen := tuple(measures)):
            return figures, errors
        from services.cel.values import EvaluationError

        for scenario_measure in chosen:
            name = scenario_measure.measure.name
            figures[name] = None
            try:
                figures[name] = self._value(scenario_measure.how)
            except EvaluationError as error:
                errors[name] = f"measure {name}: {error}"
            except Exception as error:  # whatever a package raises: the run is not lost for it
                errors[name] = f"measure {name} of {scenario_measure.measure.source}: {type(error).__name__}: {error}"
        return figures, errors

    def _value(self, how: Expression | MeasureEntry) -> float | None:
        if not isinstance(how, MeasureEntry):
            return how.value(self._variables(how))
        figure: Any = how.compute(self)
        if figure is None:
            return None
        if (
            isinstance(figure, bool)
            or not isinstance(figure, int | float)
            or figure != figure
            or abs(figure) == float("inf")
        ):
            raise TypeError(f"it returned {figure!r}, want a number or None")
        return float(figure)

    def _variables(self, how: Expression) -> Mapping[str, Any]:
        return {
            **{plural: self.objects(plural) for plural in sorted(how.at_end)},
            **{f"created.{plural}": self.created(plural) for plural in sorted(how.created)},
            "lines": {event: self.lines(event) for event in sorted(how.events)},
            "seconds": self.seconds,
        }
