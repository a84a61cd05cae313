"""`keplab events`: print lines of the event log, of a run or of the mesh that runs."""

import difflib
import time
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path

import click
import msgspec

from lab.cli.live import PodsView, console
from lab.cli.output import EXIT_FAILED, EXIT_OK, fail, refusing
from lab.cli.run_options import runs_folder_option
from lab.cli.sources import open_recording, recording_of, source_options
from lab.runs.folder import RunsFolder, Unreadable
from lab.runs.record import UnknownRun
from services.api.times import format_micro_time, seconds_in
from services.telemetry.event_reader import Filter, Follower, last, object_asked_for, read_all
from services.telemetry.eventlog import Line, encode

EVENTS_FOLDER = "events"
POLL_S = 0.2
DATA_MAX = 110
EPILOG = """\
\b
Examples:
  keplab events                                       the whole event log of the mesh
  keplab events -w --event 'sched.*'                  as it happens
  keplab events --for pod/web-0 --since 5m
  keplab events latest --event kubelet.reject         of the newest run
  keplab events RUN --for 'pod/web-*' --from 3 --to 4.5
  keplab events --recording unbind.keprec --for pod/web-0
  keplab events RUN --component scheduler -o json | jq -c '[.mono_ns, .ev, .data]'

\b
Names of events: docs/spec/guarantees.md 1.2. Times of a run are seconds since it began, in virtual time.
"""


@click.command("events", epilog=EPILOG)
@click.argument("run", metavar="[RUN]", required=False)
@click.option(
    "--for", "target", default="", metavar="KIND/NAME", help="only lines about this object; NAME may be a pattern"
)
@click.option("-n", "--namespace", default="", help="only lines about objects of this namespace  [default: all]")
@click.option(
    "--event",
    "events",
    multiple=True,
    metavar="NAME[,…]",
    help="only lines with this name, or one that matches it: 'sched.*'",
)
@click.option(
    "--component",
    "components",
    multiple=True,
    metavar="NAME",
    help="only lines of this component: scheduler, kubelet/h0",
)
@click.option("--node", default="", metavar="NAME", help="only lines about this node")
@click.option("--since", default="", metavar="DURATION", help="for the mesh: only lines newer than 5s, 2m or 3h")
@click.option(
    "--from", "from_s", type=float, metavar="SECONDS", help="for a run or recording: only lines from this moment on"
)
@click.option(
    "--to", "to_s", type=float, metavar="SECONDS", help="for a run or recording: only lines up to this moment"
)
@click.option(
    "--tail", type=click.IntRange(-1), default=-1, show_default=True, help="number of the last lines; -1: all"
)
@click.option("-w", "--watch", is_flag=True, help="for the mesh: also print new lines, until Ctrl-C")
@runs_folder_option
@source_options
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="output format; json: an object a line",
)
def events(
    run: str | None,
    target: str,
    namespace: str,
    events: tuple[str, ...],
    components: tuple[str, ...],
    node: str,
    since: str,
    from_s: float | None,
    to_s: float | None,
    tail: int,
    watch: bool,
    runs: str,
    data: Path,
    recording: Path | None,
    output: str,
) -> int:
    """Print the event log: what components did, line by line.

    The event log is that of RUN, of a recording, or without these of the mesh. Its lines are not Kubernetes Events
    (`kubectl events`), which components send to the API server for users: the event log has every decision, commit,
    watch and answer, and the invariants are judged by it. The log of a simulated run is made again for this command,
    and shown only if it is the same.
    """
    names = tuple(name for word in events for name in word.split(",") if name)
    asked = Filter(**object_asked_for(target), namespace=namespace, events=names, components=components, node=node)
    path, read = recording_of(data, recording), _Read()
    if path is not None:
        if run is not None or since or watch:
            raise click.UsageError("a recording takes no RUN, --since or --watch; it has --from and --to")
        with open_recording(path) as reader:
            zero_s = reader.meta.clock.zero_s
            begun = (line for line in read.all(reader.lines()) if _is_between(line, zero_s, from_s, to_s))
            for line in read.shown_lines(last(filter(asked.takes, begun), tail)):
                _print(line, f"{reader.time_of(line):10.6f}", output)
        read.remark(names, tail)
        return EXIT_OK
    if run is None:
        if from_s is not None or to_s is not None:
            raise click.UsageError("--from and --to need a RUN; the mesh has --since")
        _of_mesh(data, asked, since, tail, read, watch=watch, output=output)
        read.remark(names, tail)
        return EXIT_OK
    if since or watch:
        raise click.UsageError("--since and --watch need the running mesh; a RUN has --from and --to")
    lines, started_s = _of_run(runs, run)
    taken = (line for line in read.all(lines) if asked.takes(line) and _is_between(line, started_s, from_s, to_s))
    with refusing(Unreadable):
        for line in read.shown_lines(last(taken, tail)):
            _print(line, f"{line.mono_ns / 1e9 - started_s:10.6f}", output)
    read.remark(names, tail)
    return EXIT_OK


class _Read:
    """Counts of the lines read and shown, to say that there were lines when none of them is printed."""

    def __init__(self) -> None:
        self._events: set[str] = set()
        self._read = self._shown = 0

    def all(self, lines: Iterable[Line]) -> Iterator[Line]:
        """Yield the lines, and note which events there are."""
        for line in lines:
            self._read += 1
            self._events.add(line.ev)
            yield line

    def shown_lines(self, lines: Iterable[Line]) -> Iterator[Line]:
        """Yield the lines that are printed."""
        for line in lines:
            self._shown += 1
            yield line

    def remark(self, names: Sequence[str], tail: int) -> None:
        """Say on standard error that no line was printed, and which events are spelled like one that is not there."""
        if self._shown or not tail:
            return
        unknown = [name for name in names if not any(fnmatchcase(each, name) for each in self._events)]
        known = sorted(self._events)
        close = dict.fromkeys(each for name in unknown for each in difflib.get_close_matches(name, known))
        also = f"; did you mean {' or '.join(close)}?" if close else ""
        click.secho(f"keplab: none of {self._read:,} event lines is asked for{also}", err=True, fg="yellow")


def _of_run(runs: str, name: str) -> tuple[Iterator[Line], float]:
    from lab.runs.repeat import NotAgain, events_of, is_kept, other_code

    folder = RunsFolder(Path(runs))
    with refusing(UnknownRun, Unreadable):
        record, arm, seed = folder.find_by_name(name)
    code = other_code(record.origin)
    if code and not is_kept(folder, record) and record.is_repeatable and (record.kind == "run" or arm):
        click.secho(f"keplab: run {record.id} was {code}; it is made again and compared", err=True, fg="yellow")
    try:
        with refusing(UnknownRun, Unreadable), PodsView(f"{name} again", quiet=not console.is_terminal) as view:
            return events_of(folder, record, arm, seed, view.progress)
    except NotAgain as error:
        fail(str(error), EXIT_FAILED)
    except OSError as error:
        fail(f"cannot write the event log below {runs}: {error.strerror or error}", EXIT_FAILED)


def _is_between(line: Line, started_s: float, from_s: float | None, to_s: float | None) -> bool:
    at_s = line.mono_ns / 1e9 - started_s
    return (from_s is None or at_s >= from_s) and (to_s is None or at_s <= to_s)


def _of_mesh(data: Path, asked: Filter, since: str, tail: int, read: _Read, *, watch: bool, output: str) -> None:
    folder = data / EVENTS_FOLDER
    if not folder.is_dir():
        fail(f"no mesh has run on {data}; start one with `keplab up`, or name a RUN (`keplab runs`)", EXIT_FAILED)
    begin = ""
    if since:
        with refusing(ValueError):
            begin = format_micro_time(time.time() - seconds_in(since))
    follower, seen = Follower(folder), dict[tuple[str, str], int]()
    old = last((line for line in _note_newest(read.all(read_all(folder, begin)), seen) if asked.takes(line)), tail)
    for line in read.shown_lines(chain(old, filter(asked.takes, _new(follower, seen)) if watch else ())):
        _print(line, line.wall, output)


def _note_newest(lines: Iterator[Line], seen: dict[tuple[str, str], int]) -> Iterator[Line]:
    """Yield the lines, and note the newest of each process."""
    for line in lines:
        seen[line.comp, line.inc] = line.seq
        yield line


def _new(follower: Follower, seen: dict[tuple[str, str], int]) -> Iterator[Line]:
    """Yield what is written from now on; what was written while the files were read was seen there."""
    while True:
        found = follower.poll()
        yield from (line for line in found if line.seq > seen.get((line.comp, line.inc), 0))
        if not found:
            time.sleep(POLL_S)


def _print(line: Line, when: str, output: str) -> None:
    if output == "json":
        click.echo(encode(line), nl=False)
        return
    about = ""
    if line.obj is not None:
        name = "/".join(part for part in (line.obj["ns"], line.obj["name"]) if part)
        about = f" {line.obj['kind'].lower()} {name}"
    node = f" on {line.node}" if line.node else ""
    version = f" rv={line.rv}" if line.rv is not None else ""
    details = " ".join(f"{name}={_text(value)}" for name, value in line.data.items() if value not in ("", None))
    shown = details if len(details) <= DATA_MAX else f"{details[: DATA_MAX - 1]}…"
    click.echo(f"{when}  {line.comp:<16}  {line.ev:<20}{about}{node}{version}  {shown}".rstrip())


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
