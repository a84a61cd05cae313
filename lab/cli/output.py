"""Output of commands: tables and colour on a terminal, plain lines when piped, one document with `-o json`."""

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
from lab.cli.tables import block, fit_table, plain
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
    """Print one line to standard error and end the command."""
    click.secho(f"keplab: {message}", err=True, fg="red")
    raise SystemExit(code)


def no_mesh(data: Path, otherwise: str = "", options: str = "") -> NoReturn:
    """End the command with the message that no mesh runs on a directory. `otherwise`: what else could be done;
    `options`: options of `keplab up` to suggest.
    """
    command = f"keplab up {options}".rstrip()
    fail(f"no mesh runs on {data}; start one with `{command}`{otherwise}", EXIT_FAILED)


@contextmanager
def refusing(*errors: type[Exception], code: int = EXIT_USAGE) -> Iterator[None]:
    """Turn any of these errors into one line on standard error, and end the command with that code."""
    try:
        yield
    except errors as error:
        fail(str(error), code)


def write_file(path: Path, text: str) -> None:
    """Write a file that the user asked for; on failure print `cannot write PATH` and end with exit code 2."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}")


def remark(switches: Switches, who: str = "") -> None:
    """Print to standard error which of the set switches have no effect.

    `who`: the owner of the switches, if there are several.
    """
    for text in remarks(switches):
        click.secho(f"keplab: {who}{': ' if who else ''}{text}", err=True, fg="yellow")


def takes(record: Callable[Parameters, Record]) -> Callable[[Callable[[Record], Answer]], Callable[Parameters, Answer]]:
    """Pass the parameters that click parses to a command as one record, a class with a field for each parameter."""

    def taking(command: Callable[[Record], Answer]) -> Callable[Parameters, Answer]:
        @wraps(command)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Answer:
            return command(record(*args, **kwargs))

        return call

    return taking


def output_option(command: F) -> F:
    """Add `-o json` to a command; the parameter is called `output`."""
    return click.option(
        "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="output format"
    )(command)


def data_option(command: F) -> F:
    """Add `--data DIR` to a command; the parameter is called `data`."""
    return click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path(DATA_DIR_DEFAULT),
        show_default=True,
        help="directory of the mesh: state, logs, kubeconfig",
    )(command)


def set_option_of(help_text: str) -> Callable[[F], F]:
    """Add a repeatable `--set NAME=VALUE` to a command; the parameter is called `assignments`."""
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
    """Print one document, indented, with its keys in order."""
    click.echo(msgspec.json.format(msgspec.json.encode(document, enc_hook=str), indent=2).decode())


def terminal_width() -> int:
    """Return the width of standard output in columns: that of the terminal, or COLUMNS where it is set."""
    return shutil.get_terminal_size().columns


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, texts: int | None = None, spare: Sequence[str] = ()
) -> None:
    """Print rows: on a terminal as a table that fits it, or as blocks; when piped as aligned columns, uncut.

    `texts`: how many of the first columns are texts; the rest are figures, set to the right; None: all are texts.
    `spare`: columns that are left out on a terminal when the table would not fit.
    """
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    is_text = [texts is None or i < texts for i in range(len(columns))]
    if not sys.stdout.isatty():
        for line in plain(columns, cells, is_text):
            click.echo(line)
        return
    for line, is_heading in fit_table(columns, cells, is_text, terminal_width(), spare):
        click.echo(click.style(line, bold=True) if is_heading else line)


def print_block(heading: str, entries: Sequence[tuple[str, str]]) -> None:
    """Print one entity in full: its name, and below it one line per entry; on a terminal wrapped between words."""
    width = terminal_width() if sys.stdout.isatty() else sys.maxsize
    for line, is_heading in block(heading, entries, width):
        click.echo(click.style(line, bold=True) if is_heading else line)
