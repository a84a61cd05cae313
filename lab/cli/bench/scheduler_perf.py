"""`keplab bench --config FILE`: run upstream's scheduler_perf files as they are; print and write the results."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
import msgspec

from lab.cli.output import EXIT_FAILED, EXIT_OK, fail, print_json, print_table
from services.api.switches import Switches

if TYPE_CHECKING:
    from lab.benchmarks.scheduler_perf.cases import CaseFile
    from lab.benchmarks.scheduler_perf.run import Outcome, Outcomes, Prepared

F = TypeVar("F", bound=Callable[..., Any])
Progress = Callable[[str, int, int], None]
DATE = "%Y-%m-%dT%H:%M:%SZ"
DURATION, THROUGHPUT, ATTEMPTS = (
    "SchedulingDuration",
    "SchedulingThroughput",
    "scheduler_scheduling_attempt_duration_seconds",
)


@dataclass(frozen=True, kw_only=True)
class PerfOptions:
    """Options of a scheduler_perf run, one field an option, as click parses it.

    `config`: the file, None if not given. `workload_re`: regular expression that CASE/NAME must match, "" for all.
    `labels`: labels that a workload must have, or with - must not, with commas between. `data_items_dir`: where the
    data items are written, None for nowhere. `topic`: part of the name of their file, "" for the file's folder.
    `assignments`: NAME=VALUE of switches.
    """

    config: str | None
    workload_re: str
    labels: str
    form: Literal["algorithm", "mesh"]
    data_items_dir: Path | None
    topic: str
    no_thresholds: bool
    strict: bool
    unknown_gates: Literal["refuse", "ignore"]
    assignments: tuple[str, ...]
    output: Literal["text", "json"]


def options(command: F) -> F:
    """Add the options that go with `--config` to a command."""
    decorators: Sequence[Callable[[F], F]] = (
        click.option("--config", metavar="FILE", help="scheduler_perf file to run, such as performance-config.yaml"),
        click.option(
            "--workload", "workload_re", default="", metavar="RE", help="run only workloads whose CASE/NAME matches"
        ),
        click.option(
            "--labels",
            default="performance",
            show_default=True,
            help="labels that a workload must have, or with - must not have; '': all workloads",
        ),
        click.option(
            "--form",
            default="mesh",
            show_default=True,
            type=click.Choice(["algorithm", "mesh"]),
            help="mesh: scheduler and API server as processes; algorithm: the scheduler's core in this process",
        ),
        click.option(
            "--data-items-dir",
            type=click.Path(file_okay=False, path_type=Path),
            help="directory for the data items, in the form that perf-dash reads",
        ),
        click.option(
            "--topic", default="", help="topic in the name of the data items' file; default: the file's folder"
        ),
        click.option("--no-thresholds", is_flag=True, help="do not fail when a figure misses its threshold"),
        click.option("--strict", is_flag=True, help="say for each threshold whether it was met, not only the ratio"),
        click.option(
            "--unknown-gates",
            default="refuse",
            show_default=True,
            type=click.Choice(["refuse", "ignore"]),
            help="treatment of feature gates that keplab does not have",
        ),
    )
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def bench_file(options: PerfOptions, config: str, progress: Progress) -> int:
    """Run the workloads of a file that the options select; return the exit code.

    Raises: KeyboardInterrupt, after the results measured so far are written and printed.
    """
    from lab.benchmarks.scheduler_perf import cases, run
    from lab.benchmarks.scheduler_perf.located_yaml import FileError
    from lab.benchmarks.scheduler_perf.selection import Unselected

    Switches.parse(options.assignments)  # a wrong one is refused before anything starts
    try:
        file = cases.read(config)
        prepared = _prepare_workloads(file, options)
    except (FileError, Unselected) as error:
        fail(str(error))
    _check_writable(options.data_items_dir)
    outcomes = run.Outcomes(options.topic or file.topic)
    try:
        run.run(prepared, options.form, outcomes, progress, _on_ended)
    except KeyboardInterrupt:
        _finish(outcomes, options)
        raise
    return _finish(outcomes, options)


def _prepare_workloads(file: CaseFile, options: PerfOptions) -> list[Prepared]:
    """Return what is to be run, everything that a file names read."""
    from lab.benchmarks.scheduler_perf import run, selection

    workloads = []
    for workload in selection.select_workloads(file, options.workload_re, options.labels):
        chosen = selection.gates_of(
            workload, ignores_unknown=options.unknown_gates == "ignore", assignments=options.assignments
        )
        Switches.parse(chosen.assignments)
        steps = workload.steps()
        run.read_templates(workload, steps)
        workloads.append(run.Prepared(workload, steps, chosen.assignments, chosen.ignored))
    return workloads


def _check_writable(folder: Path | None) -> None:
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"--data-items-dir {folder}: {error.strerror}")
    if not os.access(folder, os.W_OK):
        fail(f"--data-items-dir {folder}: it cannot be written to")


def _finish(outcomes: Outcomes, options: PerfOptions) -> int:
    """Write and print what there is; return the exit code."""
    written = _write(outcomes, options.data_items_dir)
    missed = [each for outcome in outcomes.all for each in outcome.thresholds if not each.is_met]
    failed = [each for each in outcomes.all if each.failed]
    ran = [each for each in outcomes.all if not each.skipped]
    if options.output == "json":
        print_json({**outcomes.document(), "file": written, "workloads": [_row(each) for each in outcomes.all]})
    else:
        _show(outcomes.all, options)
        if written:
            click.echo(f"wrote {written}")
    if failed or not ran or (missed and not options.no_thresholds):
        return EXIT_FAILED
    return EXIT_OK


def _on_ended(outcome: Outcome) -> None:
    """Say what became of a workload, a line each, while the next ones run."""
    for remark in outcome.remarks:
        _say(f"{outcome.name}: {remark}")
    how = f"not run: {outcome.skipped}" if outcome.skipped else ""
    how = how or (f"failed: {outcome.failed}" if outcome.failed else f"ended after {outcome.seconds:.1f} s")
    _say(f"{outcome.name}: {how}")


def _row(outcome: Outcome) -> dict[str, Any]:
    return {
        "name": outcome.name,
        "form": outcome.form,
        "seconds": round(outcome.seconds, 3),
        "ignored_gates": list(outcome.ignored_gates),
        "measured": msgspec.to_builtins(outcome.measured),
        "thresholds": [{**msgspec.to_builtins(each), "ratio": each.ratio} for each in outcome.thresholds],
        "remarks": outcome.remarks,
        "failed": outcome.failed,
        "skipped": outcome.skipped,
    }


def _write(outcomes: Outcomes, folder: Path | None) -> str:
    """Write the data items, if a folder is given; return the file's path, "" for none."""
    from lab.benchmarks.scheduler_perf.data_items import file_name

    if folder is None:
        return ""
    path = folder / file_name(outcomes.topic.replace("/", "_"), time.strftime(DATE, time.gmtime()))
    text = msgspec.json.format(msgspec.json.encode(outcomes.document()), indent=2)
    try:
        path.write_bytes(text)
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}")
    return str(path)


def _show(outcomes: Sequence[Outcome], options: PerfOptions) -> None:
    rows = []
    for outcome in outcomes:
        figures = {(item.labels["Name"], item.labels["Metric"]): item.data for item in outcome.items}
        attempts = {
            item.labels["Name"]: item.data
            for item in outcome.items
            if item.labels["Metric"] == ATTEMPTS and item.labels.get("result") == "scheduled"
        }
        for measurement in outcome.measured:
            sampled = figures.get((measurement.name, THROUGHPUT), {})
            attempt = attempts.get(measurement.name, {})
            rows.append(
                (
                    measurement.name,
                    f"{measurement.pods:,}",
                    f"{sampled['Average']:,.1f}" if sampled else "",
                    f"{measurement.pods_per_s:,.1f}" if measurement.pods else "",
                    f"{attempt['Perc99']:,.2f}" if attempt else "",
                    f"{figures.get((measurement.name, DURATION), {}).get('Duration', 0.0):,.2f}",
                    _threshold(outcome, measurement.name, options),
                )
            )
    if rows:
        print_table(("NAME", "PODS", "SAMPLED PODS/s", "PODS/s", "ATTEMPT p99 ms", "s", "OF THRESHOLD"), rows, texts=1)
    ignored = sorted({gate for each in outcomes for gate in each.ignored_gates})
    if ignored:
        click.echo(f"feature gates left out: {', '.join(ignored)}")


def _threshold(outcome: Outcome, name: str, options: PerfOptions) -> str:
    found = [each for each in outcome.thresholds if each.name == name]
    ratios = [f"{each.ratio:.2f}" for each in found]
    if not options.strict:
        return " ".join(ratios)
    said = ["met" if each.is_met else "missed" for each in found]
    return " ".join(f"{ratio} {word}" for ratio, word in zip(ratios, said, strict=True))


def _say(text: str) -> None:
    click.echo(text, err=True)
