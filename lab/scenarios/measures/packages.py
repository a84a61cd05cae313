"""Measures of installed packages: entry points in the group `keplab.measures`, each leading to a `MeasureEntry`.
Pure."""

from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from lab.scenarios.measures.entry import MeasureEntry
from lab.scenarios.measures.register import DIRECTIONS, MEASURES, NAME, Measure
from services.api.resources import resources

GROUP: Final = "keplab.measures"


class MeasureSourceError(ValueError):
    """A package's measure cannot be loaded; one line with its name, its origin and the reason."""


def origin_of(point: EntryPoint) -> str:
    """Return the origin of an entry point, for messages."""
    package = point.dist.name if point.dist is not None else "an unnamed package"
    return f"entry point {point.name} = {point.value} of {package}"


@cache
def entry_points_by_name() -> dict[str, tuple[EntryPoint, ...]]:
    """Return the entry points by name; nothing is imported yet."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda each: (each.name, each.value)):
        found[point.name] = (*found.get(point.name, ()), point)
    return found


@cache
def package_measure(name: str) -> tuple[MeasureEntry, Measure]:
    """Return a package's measure and its entry in the register. Raises: MeasureSourceError."""
    points = entry_points_by_name().get(name, ())
    if not points:
        there = ", ".join(entry_points_by_name()) or "none"
        raise MeasureSourceError(f"no package offers a measure {name!r} (entry points in {GROUP}: {there})")
    if len(points) > 1:
        raise MeasureSourceError(f"measure {name} is offered twice: {' and '.join(map(origin_of, points))}")
    origin = origin_of(points[0])
    try:
        entry: Any = points[0].load()
    except Exception as error:  # whatever a package raises while it is imported
        raise MeasureSourceError(f"{origin}: {type(error).__name__}: {error}") from error
    if not isinstance(entry, MeasureEntry):
        raise MeasureSourceError(f"{origin} is a {type(entry).__name__}, want a MeasureEntry")
    if entry.name != name:
        raise MeasureSourceError(f"{origin} leads to a measure {entry.name!r}; entry point and measure have one name")
    for problem in _problems(entry):
        raise MeasureSourceError(f"{origin}: {problem}")
    package = points[0].dist.name if points[0].dist is not None else "a package"
    return entry, entry.measure(package)


def _problems(entry: MeasureEntry) -> Iterator[str]:
    if NAME.fullmatch(entry.name) is None:
        yield f"{entry.name!r} is no name of a measure; want lower-case letters, digits and _, a letter first"
    if any(each.name == entry.name for each in MEASURES):
        yield f"{entry.name} is a measure that comes with keplab"
    if entry.better and entry.better not in DIRECTIONS:
        yield f"better={entry.better!r}: want lower, higher or nothing"
    known = {each.plural for each in resources().values()}
    for plural in (*entry.objects, *entry.versions):
        if plural not in known:
            yield f"no resource is called {plural!r}; there are: {', '.join(sorted(known))}"


def measures() -> list[Measure]:
    """Return the register's entries for all measures of packages; one that cannot be loaded has the reason as
    its meaning.
    """
    entries: list[Measure] = []
    for name in entry_points_by_name():
        try:
            entries.append(package_measure(name)[1])
        except MeasureSourceError as error:
            entries.append(Measure(name, "", str(error), "", "package"))
    return entries
