"""Formatting of measures: their description in the register, with readable units and digits. Pure.

A measure that is not in the register is shown under its own name; its unit follows from the ending of the
name.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from lab.scenarios.measures.register import MEASURES, OF_A_RESOURCE, Measure, find

MINUS: Final = "−"
NOTHING: Final = "–"
_UNITS_BY_ENDING: Final = {"_s": "s", "_min": "min", "_kib": "KiB", "_mib": "MiB", "_gib": "GiB", "_percent": "%"}
_SAID_UNITS: Final = {"min": (", minutes", ""), "KiB": (", KiB", ", size"), "GiB": (", GiB", "")}
_SHORT_S: Final = 1.0
_LONG_S: Final = 600.0
_PLACES: Final = {each.name: place for place, each in enumerate(MEASURES)}


def describe_measure(name: str, stated: Sequence[Measure] = ()) -> Measure:
    """Return the description of a measure; `stated`: the measures that the scenario states. An unknown measure
    is described by its name.
    """
    if (known := find(name, stated)) is not None:
        return known
    for ending, unit in _UNITS_BY_ENDING.items():
        if name.endswith(ending):
            return Measure(name, unit, name.removesuffix(ending), "", "")
    return Measure(name, "", name, "", "")


def label_of(measure: Measure) -> str:
    """Return the name of a measure for tables, where the figures carry the unit."""
    said, instead = _SAID_UNITS.get(measure.unit, ("", ""))
    return measure.meaning.removesuffix(said) + (instead if said and measure.meaning.endswith(said) else "")


def in_order(names: Iterable[str]) -> list[str]:
    """Return measures in the order of tables: those that their scenario states come first, in its order."""
    known = list(dict.fromkeys(names))
    own = [name for name in known if not is_registered(name)]
    return own + sorted((name for name in known if is_registered(name)), key=_place)


def is_registered(name: str) -> bool:
    """Return whether the measure is one of keplab's own."""
    return find(name) is not None


def _place(name: str) -> int:
    if name in _PLACES:
        return _PLACES[name]
    endings = (each for each in _PLACES if each.startswith(OF_A_RESOURCE))
    return next(_PLACES[each] for each in endings if name.endswith(each.removeprefix(OF_A_RESOURCE)))


class Scale(NamedTuple):
    """Format of the values of one row: one unit and one precision, so that they can be compared at a glance."""

    factor: float
    unit: str
    digits: int

    def number(self, value: float | None, *, signed: bool = False) -> str:
        """Return the number without its unit; a dash for None."""
        if value is None:
            return NOTHING
        if value == 0:
            return "0"
        text = f"{abs(value) * self.factor:,.{self.digits}f}"
        is_zero = not text.strip("0.,")
        sign = "" if is_zero else MINUS if value < 0 else "+" if signed else ""
        return sign + text

    def text(self, value: float | None, *, signed: bool = False) -> str:
        """Return the number with its unit."""
        shown = self.number(value, signed=signed)
        return shown if value is None else f"{shown}{self._ending}"

    def between(self, low: float, high: float, *, signed: bool = False) -> str:
        """Return a range with its unit."""
        return f"{self.number(low, signed=signed)} to {self.number(high, signed=signed)}{self._ending}"

    @property
    def _ending(self) -> str:
        return f" {self.unit}" if self.unit and not self.unit.startswith("/") else self.unit


def scale_of(unit: str, values: Iterable[float | None]) -> Scale:
    """Return the scale for these values: seconds as ms, s or min by the largest, whole numbers without a
    fraction, others with about three significant digits.
    """
    there = [value for value in values if value is not None]
    top = max(map(abs, there), default=0.0)
    factor, unit = 1.0, unit.removeprefix("1") if unit.startswith("1/") else unit
    if unit == "s" and 0 < top < _SHORT_S:
        factor, unit = 1000.0, "ms"
    elif unit == "s" and top >= _LONG_S:
        factor, unit = 1 / 60, "min"
    scaled = [value * factor for value in there]
    if all(value == int(value) for value in scaled):
        return Scale(factor, unit, 0)
    most = top * factor
    return Scale(factor, unit, 0 if most >= 1000 else 1 if most >= 100 else 2 if most >= 1 else 3)
