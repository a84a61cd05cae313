"""How commands speak: tables and colour on a terminal, plain lines when piped, one document with `-o json`."""

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar

import click
import msgspec

from lab.cli import completing
from lab.cli.tables import block, fitted, plain
from services.api.features.idle_switches import remarks
from services.api.switches import Switches

F = TypeVar("F", bound=Callable[..., Any])
Parameters = ParamSpec("Parameters")
Record = TypeVar("Record")
Answer = TypeVar("Answer")

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOT_STARTED = 3
EXIT_INTERRUPTED = 130

DATA_DIR_DEFAULT = ".keplab"


def fail(message: str, code: int = EXIT_USAGE) -> NoReturn:
    """Print one line to standard error and end."""
    click.secho(f"keplab: {message}", err=True, fg="red")
    raise SystemExit(code)


def no_mesh(data: Path, otherwise: str = "", options: str = "") -> NoReturn:
    """Say that no mesh runs on a directory, and end the command. `otherwise`: what else could be done; `options`: of
    `keplab up`."""
    command = f"keplab up {options}".rstrip()
    fail(f"no mesh runs on {data}; start one with `{command}`{otherwise}", EXIT_FAILED)


@contextmanager
def refusing(*errors: type[Exception], code: int = EXIT_USAGE) -> Iterator[None]:
    """Have one of these errors be one line on standard error, and end the command with that code."""
    try:
        yield
    except errors as error:
        fail(str(error), code)


def write_file(path: Path, text: str) -> None:
    """Write a file that was asked for; where that cannot be, `cannot write PATH` and exit code 2."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}")


def remark(switches: Switches, who: str = "") -> None:
    """Say on standard error which of the switches that were set change nothing; `who`: of several, whose they are."""
    for text in remarks(switches):
        click.secho(f"keplab: {who}{': ' if who else ''}{text}", err=True, fg="yellow")


def takes(record: Callable[Parameters, Record]) -> Callable[[Callable[[Record], Answer]], Callable[Parameters, Answer]]:
    """Have a command get one record of what click parses, a class with a field for each parameter."""

    def taking(command: Callable[[Record], Answer]) -> Callable[Parameters, Answer]:
        @wraps(command)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Answer:
            return command(record(*args, **kwargs))

        return call

    return taking


def output_option(command: F) -> F:
    """Give a command `-o json`; the parameter is called `output`."""
    return click.option(
        "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="output format"
    )(command)


def data_option(command: F) -> F:
    """Give a command `--data DIR`; the parameter is called `data`."""
    return click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path(DATA_DIR_DEFAULT),
        show_default=True,
        help="directory of the mesh: state, logs, kubeconfig",
    )(command)


def set_option_of(help_text: str) -> Callable[[F], F]:
    """Give a command repeatable `--set NAME=VALUE`; the parameter is called `assignments`."""
    return click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="NAME=VALUE",
        shell_complete=completing.assignments,
        help=help_text,
    )


set_option = set_option_of("set a switch; may be repeated (`keplab switches` lists them)")
arms_set_option = set_option_of("set a switch for all arms; may be repeated")


def print_json(document: Any) -> None:
    """Print one document, indented, keys in their order."""
    click.echo(msgspec.json.format(msgspec.json.encode(document, enc_hook=str), indent=2).decode())


def terminal_width() -> int:
    """Return how wide standard output is: the terminal's columns, as COLUMNS says where it is set."""
    return shutil.get_terminal_size().columns


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, texts: int | None = None, spare: Sequence[str] = ()
) -> None:
    """Print rows: on a terminal a table that fits it, or blocks; when piped aligned columns, whole.

    `texts`: the first so many columns are texts, the rest figures, set to the right; None: all are texts. `spare`:
    columns that a terminal goes without when the table would not fit.
    """
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    is_text = [texts is None or i < texts for i in range(len(columns))]
    if not sys.stdout.isatty():
        for line in plain(columns, cells, is_text):
            click.echo(line)
        return
    for line, is_heading in fitted(columns, cells, is_text, terminal_width(), spare):
        click.echo(click.style(line, bold=True) if is_heading else line)


def print_block(heading: str, entries: Sequence[tuple[str, str]]) -> None:
    """Print one thing whole: its name, and below it a line an entry; on a terminal wrapped between words."""
    width = terminal_width() if sys.stdout.isatty() else sys.maxsize
    for line, is_heading in block(heading, entries, width):
        click.echo(click.style(line, bold=True) if is_heading else line)
