"""Description of a benchmark: its name, its options, how it is run and what is shown. `keplab bench` makes a
command of each.

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
    """Command-line form of a field of an options record; type and default are those of the field.

    `flag`: with its dashes; empty for the field's name. `least`, `most`: bounds of a number. `choices`: the
    allowed texts. `metavar`: name of the value in help. `has_default`: whether help shows the default.
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
    """Declare a field of a frozen dataclass as an option; one of type `tuple[str, ...]` may be repeated.

    An empty default is not shown: the help text has to explain it.
    """
    has_default = default not in (None, "", ()) and not isinstance(default, bool)
    declared = Option(
        help=about, flag=flag, least=least, most=most, choices=choices, metavar=metavar, has_default=has_default
    )
    return field(default=default, metadata={OPTION: declared})


def switch_option() -> Any:
    """Declare a field of type `tuple[str, ...]` as `--set NAME=VALUE`, which may be repeated."""
    return field(default=(), metadata={OPTION: None})


@dataclass(frozen=True)
class NoOptions:
    """Options record of a benchmark without options."""


@dataclass(frozen=True)
class Table:
    """Rows below headings. `texts`: number of leading text columns, the others being figures; None: all are texts."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    texts: int | None = None


@dataclass(frozen=True)
class Reporter:
    """Output callbacks of a running benchmark: `say` prints a line; `progress` gets what is being done, how much
    is done, and the total.
    """

    say: Callable[[str], None]
    progress: Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class Bench(Generic[Options, Figures]):
    """One benchmark.

    `help`: paragraphs; lists show the first line of the first. `options`: a frozen dataclass whose fields are
    declared with `option` and `switch_option`. `run`: measures. `table`: the lines and tables a terminal
    shows. `document`: the JSON document. `late`: message for a TimeoutError without text from `run`; empty if
    it raises none. `refusals`: errors of `run` that are the user's fault. `has_bar`: whether it calls
    `progress`, for which a bar is drawn. `is_failed`: whether the figures are a failure; `is_interrupted`:
    whether they are of a run that Ctrl-C cut short.
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
