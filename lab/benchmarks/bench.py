"""What a benchmark says of itself: its name, its options, how it is run and what is shown. `keplab bench` makes a
command of it.

A module with a benchmark has one record, `BENCH`, and a row in `lab/cli/bench/command_table.py`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

OPTION: Final = "option"
NOT_THERE: Final = "the mesh did not get there in time"
Options = TypeVar("Options")
Figures = TypeVar("Figures")


@dataclass(frozen=True, kw_only=True)
class Option:
    """How the field of an options record is said on the command line; its type and its default are the field's.

    `flag`: with its dashes, "" for the field's name. `least`, `most`: the bounds of a number. `choices`: the texts that
    there are. `metavar`: how its value is called in help. `has_default`: help shows the default.
    """

    help: str
    flag: str
    least: float | None
    most: float | None
    choices: tuple[str, ...]
    metavar: str
    has_default: bool


def option(
    default: object,
    about: str = "",
    *,
    flag: str = "",
    least: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] = (),
    metavar: str = "",
) -> Any:
    """Declare a field of a frozen dataclass as an option. The default None is not shown: help says what it means."""
    has_default = default is not None and not isinstance(default, bool)
    declared = Option(
        help=about, flag=flag, least=least, most=most, choices=choices, metavar=metavar, has_default=has_default
    )
    return field(default=default, metadata={OPTION: declared})


def switch_option() -> Any:
    """Declare a field of type `tuple[str, ...]` as `--set NAME=VALUE`, which may be repeated."""
    return field(default=(), metadata={OPTION: None})


@dataclass(frozen=True)
class NoOptions:
    """The options of a benchmark that has none."""


@dataclass(frozen=True)
class Table:
    """Rows below headings. `texts`: the first so many columns are texts, the rest figures; None: all are texts."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    texts: int | None = None


@dataclass(frozen=True)
class Reporter:
    """What a benchmark says while it runs: `say` a line; `progress` what is done, how much of it, and of how much."""

    say: Callable[[str], None]
    progress: Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class Bench(Generic[Options, Figures]):
    """One benchmark.

    `help`: paragraphs, the first line of the first is the one in lists. `options`: a frozen dataclass whose fields are
    declared with `option` and `switch_option`. `run`: measures. `table`: what a terminal shows, lines and tables.
    `document`: the JSON document. `late`: said when `run` raises a TimeoutError without words; "": it raises none.
    `refusals`: errors of `run` that are the user's. `has_bar`: it calls `progress`, for which a bar is drawn.
    `is_failed`: whether figures are a failure; `is_interrupted`: whether they are of a run that Ctrl-C cut short.
    """

    name: str
    help: str
    options: Callable[..., Options]
    run: Callable[[Options, Reporter], Figures]
    table: Callable[[Options, Figures], Iterable[str | Table]]
    document: Callable[[Figures], object]
    late: str = ""
    refusals: tuple[type[Exception], ...] = ()
    has_bar: bool = False
    is_failed: Callable[[Figures], bool] = lambda _: False
    is_interrupted: Callable[[Figures], bool] = lambda _: False
