"""Commands made from benchmarks' records: a record gives the options, the run and the printed table."""

import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import click
from rich.progress import Progress

from lab.cli.bench.command_table import BENCHES
from lab.cli.groups import Context, Group
from lab.cli.live import progress_bar
from lab.cli.output import EXIT_FAILED, EXIT_OK, output_option, print_json, print_table, refusing, set_option

if TYPE_CHECKING:
    from lab.benchmarks.bench import Bench, Option

DRAWN_EVERY_S = 0.1
NUMBERS: dict[type, Callable[..., click.ParamType[Any]]] = {int: click.IntRange, float: click.FloatRange}


class Benches(Group):
    """The benchmarks of the table; only the called benchmark is imported."""

    def lines(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        """Return the table."""
        return {"Commands": [(row.name, row.line) for row in BENCHES.values()]}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(BENCHES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a benchmark and return its command; None when it is not one."""
        row = BENCHES.get(cmd_name)
        if row is None:
            return None
        command = command_of(importlib.import_module(row.path).BENCH, self.epilog or "")
        command.context_class = Context
        return command


def command_of(bench: "Bench[Any, Any]", epilog: str) -> click.Command:
    """Return the command that runs a benchmark."""

    def call(output: str, **values: object) -> int:
        return _run(bench, bench.options(**values), output)

    callback = output_option(call)
    for name, declared, value_type, default in reversed(list(_options_of(bench))):
        callback = set_option(callback) if declared is None else _option(name, declared, value_type, default)(callback)
    return click.command(bench.name, epilog=epilog, help=bench.help)(callback)


def _run(bench: "Bench[Any, Any]", options: object, output: str) -> int:
    """Run a benchmark and print its figures; return the exit code. Raises: KeyboardInterrupt, with them printed."""
    from lab.benchmarks.bench import Reporter

    with refusing(*bench.refusals), _in_time(bench.late), _progress(bench, output) as progress:
        figures = bench.run(options, Reporter(_say, progress))
    if output == "json":
        print_json(bench.document(figures))
    else:
        for part in bench.table(options, figures):
            if isinstance(part, str):
                click.echo(part)
            else:
                print_table(part.columns, part.rows, texts=part.texts)
    if bench.is_interrupted(figures):
        raise KeyboardInterrupt
    return EXIT_FAILED if bench.is_failed(figures) else EXIT_OK


def _options_of(bench: "Bench[Any, Any]") -> "Iterator[tuple[str, Option | None, type, object]]":
    """Yield name, declaration, type and default of every option; the declaration is None for switches."""
    from lab.benchmarks.bench import OPTION

    record: Any = bench.options
    types = get_type_hints(record)
    for field in fields(record):
        members = get_args(types[field.name])
        value_type = members[0] if NoneType in members else types[field.name]
        yield field.name, field.metadata[OPTION], value_type, field.default


def _option(name: str, declared: "Option", value_type: type, default: object) -> Callable[[Any], Any]:
    """Return what gives a command this option."""
    flag = declared.flag or f"--{name.replace('_', '-')}"
    if value_type is bool:
        return click.option(flag, name, is_flag=True, help=declared.help)
    is_repeated = get_origin(value_type) is tuple
    return click.option(
        flag,
        name,
        multiple=is_repeated,
        default=default,
        show_default=declared.has_default,
        type=_click_type(declared, str if is_repeated else value_type),
        metavar=declared.metavar or None,
        help=declared.help or None,
    )


def _click_type(declared: "Option", value_type: type) -> Any:
    """Return what click checks a value with."""
    if declared.choices:
        return click.Choice(declared.choices)
    if value_type is Path:
        return click.Path(file_okay=False, path_type=Path)
    if declared.least is None and declared.most is None:
        return value_type
    return NUMBERS[value_type](declared.least, declared.most)


@contextmanager
def _in_time(late: str) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        if not late:
            raise
        _say(f"Error: {str(error) or late}")
        raise click.exceptions.Exit(EXIT_FAILED) from None


@contextmanager
def _progress(bench: "Bench[Any, Any]", output: str) -> Iterator[Callable[[str, int, int], None]]:
    if not bench.has_bar:
        yield lambda what, done, total: None
        return
    with progress_bar("{task.description}", quiet=output == "json", is_transient=True) as bar:
        yield shown_by(bar)


def shown_by(bar: Progress) -> Callable[[str, int, int], None]:
    """Return the function that shows progress. It draws at most ten times a second, because drawing costs CPU."""
    task, drawn_at_s = bar.add_task("starting", total=None), 0.0

    def show(what: str, done: int, total: int) -> None:
        nonlocal drawn_at_s
        now_s = time.perf_counter()  # a simulation forbids the clock that components may read
        if done == total or now_s - drawn_at_s > DRAWN_EVERY_S:
            drawn_at_s = now_s
            bar.update(task, description=what, completed=done, total=total)

    return show


def _say(text: str) -> None:
    click.echo(text, err=True)
