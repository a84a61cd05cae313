"""`keplab logs`: print the logs of a mesh's processes."""

import time
from heapq import merge
from pathlib import Path

import click
import msgspec

from lab.cli.log_files import LogLine, Tail, lines_of, processes
from lab.cli.output import EXIT_FAILED, EXIT_OK, data_option, fail, refusing
from services.api.times import format_micro_time, parse_time, seconds_in

POLL_S = 0.2
EPILOG = """\
\b
Examples:
  keplab logs                       all processes, merged by time
  keplab logs scheduler --tail 20
  keplab logs kubelet -f            every kubelet host, as it happens
  keplab logs --since 5m -o json | jq -c 'select(.level != "info")'

\b
Logs of containers: kubectl logs POD. What components decided: keplab events.
"""


@click.command("logs", epilog=EPILOG)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("-f", "--follow", is_flag=True, help="also print lines that are added, until Ctrl-C")
@click.option("--since", default="", metavar="DURATION", help="only lines newer than 5s, 2m or 3h")
@click.option("--since-time", default="", metavar="TIME", help="only lines after this time (RFC 3339)")
@click.option(
    "--tail",
    type=click.IntRange(-1),
    default=-1,
    show_default=True,
    help="number of the last lines of each process; -1: all",
)
@data_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="output format; json: an object a line",
)
def logs(names: tuple[str, ...], follow: bool, since: str, since_time: str, tail: int, data: Path, output: str) -> int:
    """Print the logs of the mesh's processes.

    NAME is the name of a process, as `keplab status` lists them, or of a component (`kubelet` for all its hosts).
    Without NAME the command prints the logs of all processes, each line after the name of its process. Logs outlive the
    mesh.
    """
    begin = _begin(since, since_time)
    chosen = _log_paths(data, names)
    has_prefix = len(chosen) > 1
    tails = {name: Tail(name, path) for name, path in chosen.items()} if follow else {}
    old = (lines_of(name, path, begin, tail) for name, path in chosen.items())
    for line in merge(*old, key=lambda line: line.timestamp):
        _print(line, output, has_prefix=has_prefix)
    while follow:
        for name, path in _log_paths(data, names).items():
            tails.setdefault(name, Tail(name, path, is_new=True))
        lines = sorted((line for each in tails.values() for line in each.poll()), key=lambda line: line.timestamp)
        for line in lines:
            _print(line, output, has_prefix=has_prefix)
        if not lines:
            time.sleep(POLL_S)
    return EXIT_OK


def _begin(since: str, since_time: str) -> str:
    """Return the time from which on lines are shown."""
    if since and since_time:
        raise click.UsageError("only one of --since and --since-time may be used")
    with refusing(ValueError):
        if since:
            return format_micro_time(time.time() - seconds_in(since))
        return format_micro_time(parse_time(since_time)) if since_time else ""


def _log_paths(data: Path, names: tuple[str, ...]) -> dict[str, Path]:
    """Return the processes that are asked for; a name that none has ends the command."""
    known = processes(data)
    if not known:
        fail(f"no mesh has run on {data}; start one with `keplab up`", EXIT_FAILED)
    paths: dict[str, Path] = {}
    for name in names:
        of_name = {each: path for each, path in known.items() if each == name or each.startswith(f"{name}/")}
        if not of_name:
            fail(f"no process is called {name!r}; there are {', '.join(known)}")
        paths |= of_name
    return paths if names else known


def _print(line: LogLine, output: str, *, has_prefix: bool) -> None:
    if output == "json":
        click.echo(msgspec.json.encode(line.document()))
    else:
        click.echo(f"[{line.process}] {line.for_people()}" if has_prefix else line.for_people())
