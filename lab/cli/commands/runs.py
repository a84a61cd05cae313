"""`keplab runs`: list the runs that were made."""

import time
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path
from typing import Any

import click

from lab.cli.output import EXIT_OK, output_option, print_json, print_table
from lab.cli.run_options import runs_folder_option
from lab.runs.folder import RunsFolder
from lab.runs.record import RunRecord
from services.api.times import duration, parse_time

SHOWN_DEFAULT = 20
EPILOG = """\
\b
Examples:
  keplab runs
  keplab runs --scenario runaway --failed
  keplab runs -n 1 -o json | jq -r '.[].command'     the command of the newest run
  keplab report RUN                                  its page again
  keplab events RUN                                  its event log
  keplab diff RUN RUN                                where two of them decided differently

\b
RUN is an id, its beginning, or `latest`, `latest~1`, …; a run of a comparison is ID/ARM/SEED. The newest 500 runs are
kept, up to 1 GiB; a record is a folder, which may be removed.
"""


@click.command("runs", epilog=EPILOG)
@click.option(
    "--scenario",
    default="",
    metavar="NAME",
    help="list only runs of scenarios whose name or path contains this or matches it",
)
@click.option("--failed", is_flag=True, help="list only runs in which an expectation or invariant failed")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(0),
    help=f"number of the newest runs to list; 0: all [default: {SHOWN_DEFAULT}; all as JSON]",
)
@runs_folder_option
@output_option
def runs(scenario: str, failed: bool, limit: int | None, runs: str, output: str) -> int:
    """List the recorded runs.

    The list has runs, comparisons and sweeps, newest first, with their times, revisions and results.
    """
    folder = RunsFolder(Path(runs))
    matches = (record for record in folder.records() if _is_asked_for(record, scenario, failed))
    if output == "json":
        print_json([record.document() for record in islice(matches, limit or None)])
        return EXIT_OK
    records = list(matches)
    if not records:
        what = f"no run in {runs} is asked for" if folder.ids() else f"no runs in {runs}; `keplab run FILE` makes one"
        click.echo(what, err=True)
        return EXIT_OK
    shown = records[: (SHOWN_DEFAULT if limit is None else limit) or None]
    now = time.time()
    print_table(
        ("RUN", "AGE", "SCENARIO", "SEED", "RESULT", "REVISION", "DIGEST", "TOOK", "SWITCHES"),
        [_row(record, now) for record in shown],
    )
    if len(records) > len(shown):
        click.echo(f"{len(records) - len(shown)} older runs are not shown; -n 0 shows all", err=True)
    return EXIT_OK


def _is_asked_for(record: RunRecord, scenario: str, failed: bool) -> bool:
    names = (record.scenario, record.origin.path)
    is_named = not scenario or any(scenario in name or fnmatch(name, scenario) for name in names)
    return is_named and not (failed and record.passed)


def _row(record: RunRecord, now: float) -> tuple[Any, ...]:
    first, last = (record.seeds[0], record.seeds[-1]) if record.seeds else (record.seed, record.seed)
    mode = "" if record.mode == "simulated" else f" ({record.mode})"
    switches = " ".join(record.assignments)
    if record.arms:
        switches = " ".join(f"{name}:{','.join(values)}" if values else name for name, values in record.arms.items())
    return (
        record.id,
        duration(now - parse_time(record.origin.made)),
        record.scenario + mode,
        str(first) if first == last else f"{first}..{last}",
        "passed" if record.passed else "failed",
        record.origin.code or "-",
        record.digest[:8] or "-",
        duration(record.wall_s),
        switches or "-",
    )
