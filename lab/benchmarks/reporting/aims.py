"""Aims of figures, a table in `docs/benchmarks/aims.json`, and the figures that were committed last."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import msgspec

FOLDER: Final = Path(__file__).parents[3] / "docs" / "benchmarks"
AIMS: Final = "aims.json"
FIGURES: Final = "figures.json"


class Aim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Aim of the figures whose name matches `name`, where * is any text; exactly one of the bounds is given.

    `then`: the bound after this one, with the same sense; None where none is set. `what`: a figure that
    `make bench` does not measure, in words; empty for the others.
    """

    name: str
    at_most: float | None = None
    at_least: float | None = None
    then: float | None = None
    what: str = ""

    def __post_init__(self) -> None:
        if (self.at_most is None) == (self.at_least is None):
            raise ValueError(f"{self.name}: want at_most or at_least")

    @property
    def limit(self) -> float:
        """The bound, upper or lower."""
        limit = self.at_most if self.at_least is None else self.at_least
        assert limit is not None
        return limit


class Aims:
    """The table of aims."""

    def __init__(self, rows: tuple[Aim, ...] = ()) -> None:
        self.rows = rows

    def of(self, name: str) -> Aim | None:
        """Return the first row that matches the figure's name."""
        return next((row for row in self.rows if fnmatchcase(name, row.name)), None)


def read_aims(folder: Path = FOLDER) -> Aims:
    """Return the table of the folder. Raises: msgspec.ValidationError, OSError."""
    return Aims(msgspec.json.decode((folder / AIMS).read_bytes(), type=tuple[Aim, ...]))


class _Committed(msgspec.Struct):
    name: str
    value: float


class _Report(msgspec.Struct):
    figures: list[_Committed]


def last_figures(folder: Path = FOLDER) -> Mapping[str, float]:
    """Return the committed figures by name; none when the folder has no report."""
    try:
        report = msgspec.json.decode((folder / FIGURES).read_bytes(), type=_Report)
    except FileNotFoundError:
        return {}
    return {figure.name: figure.value for figure in report.figures}
