"""`keplab compare`: run a scenario in several arms with equal seeds; show what differs, how much and how often."""

import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

import click
import msgspec

from lab.cli import completing
from lab.cli.output import EXIT_FAILED, EXIT_OK, arms_set_option, fail, print_json, refusing, remark, takes
from lab.cli.recording import keep_comparison
from lab.cli.run_options import NO_RUNS, RUNS_DEFAULT, running_mesh_options, runs_option, sweep_options
from lab.cli.running_mesh import running_mesh
from lab.cli.scenario_files import SCENARIO, path_in_command
from lab.cli.sweep import RunsBar, workers_of
from lab.experiments.arms import Arm, parse_arms
from lab.experiments.comparison import comparison_of
from lab.experiments.comparison_request import ComparisonRequest
from lab.experiments.document import ArmRun, Comparison, Provenance, document_of
from lab.experiments.execution import ArmJob, run_arm, run_arm_showing
from lab.experiments.picture import picture as drawn
from lab.experiments.record import Header, Record, RecordError
from lab.experiments.views import csv_rows, markdown, text
from lab.experiments.wording import count_text
from lab.scenarios.loading import load_scenario, measures_of
from lab.scenarios.processes.foreign_mesh import refusal
from lab.scenarios.revision import revision
from lab.scenarios.run import plan_of
from lab.scenarios.script.scenario import ScriptError
from lab.scenarios.sweep import runs_of
from lab.ui.result_page import comparison_page
from services.api.switches import SwitchError, Switches


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Options of a comparison, one field an option or argument, as click parses it.

    `arms`: NAME:SWITCH=VALUE[,…]; `assignments`: NAME=VALUE for all of them; `seed`: the first of `seeds`. `server`
    (HOST:PORT) and `containers` (a compose project) name a mesh that already runs; "" if not given. `report`: the
    page, None for one in `runs`; `runs`: a folder, or NO_RUNS. `recording`: a folder for recordings; `record`: the
    file that lists the finished runs. `workers`: processes, 0 for as many as cores.
    """

    file: Path
    arms: tuple[str, ...]
    assignments: tuple[str, ...]
    seeds: int
    seed: int
    processes: bool
    server: str
    containers: str
    report: Path | None
    picture: Path | None
    recording: Path | None
    runs: str
    record: Path | None
    workers: int
    output: Literal["text", "json", "markdown", "csv"]


@click.command(
    "compare",
    epilog="""\b
Examples:
  keplab compare experiments/runaway/runaway.txt \\
    --arm fail:kubelet.on_reject=fail --arm unbind:kubelet.on_reject=unbind
  keplab compare experiments/first-life/a-pods-first-life.txt --arm a --arm b      (A/A: no difference)
  keplab compare FILE --arm hard:scheduler.exclusion=hard --arm soft:scheduler.exclusion=soft --seeds 20 \\
    --record runs/exclusion.jsonl -o markdown
  keplab compare experiments/runaway/runaway.txt --containers keplab \\
    --arm fail:kubelet.on_reject=fail --arm unbind:kubelet.on_reject=unbind""",
)
@click.argument("file", type=SCENARIO)
@click.option(
    "--arm",
    "arms",
    multiple=True,
    shell_complete=completing.arms,
    required=True,
    metavar="NAME:SWITCH=VALUE[,…]",
    help="arm of the comparison: its name and its switches; may be repeated",
)
@click.option(
    "--seeds", type=click.IntRange(1, 10_000), default=1, show_default=True, help="number of runs of each arm"
)
@click.option("--seed", type=int, default=0, show_default=True, help="first seed")
@click.option(
    "--processes", is_flag=True, help="run real processes over gRPC; one run at a time unless --workers says more"
)
@running_mesh_options
@arms_set_option
@click.option("--report", type=click.Path(path_type=Path), help="path of the page; the JSON document lies beside it")
@click.option(
    "--picture", type=click.Path(path_type=Path), help="write the plots as FILE.svg, and FILE-dark.svg for dark paper"
)
@click.option(
    "--recording",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="directory to record all of each run into, as ARM-SEED.keprec",
)
@runs_option
@sweep_options
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "markdown", "csv"]),
    default="text",
    show_default=True,
    help="output format",
)
@takes(CompareOptions)
def compare(options: CompareOptions) -> int:
    """Run a scenario in several arms and show what differs.

    The command runs FILE once for each arm and seed. It prints medians, their spread, and the difference within a seed.
    Ctrl-C shows the result of the finished runs; with --record the same command goes on from there. The page is one
    file that opens without a server, and the JSON document beside it holds all of its data. --recording writes all of
    each run into a file that `keplab diff`, `keplab get --at` and other commands read, and the page then has the
    recordings of one seed. The exit code is 1 when a run broke an invariant or did not come to its end. Components of a
    mesh that runs already are restarted with an arm's switches where these differ, and have their own switches again at
    the end."""
    began = _Began.now()
    wanted = _comparison_request(options)
    runs, picture, record, output = options.runs, options.picture, options.record, options.output
    path = options.report or Path(RUNS_DEFAULT if runs == NO_RUNS else runs) / f"{wanted.scenario.name}.html"
    pictures = (picture, picture.with_name(f"{picture.stem}-dark{picture.suffix}")) if picture is not None else ()
    _writable(path, *pictures)
    jobs = wanted.jobs()
    count = workers_of(options.workers or (1 if wanted.is_alone else 0), len(jobs))
    with _open_record(record, wanted.header()) as kept:
        arm_runs, is_interrupted = _run_all(jobs, kept, count, is_alone=output != "json")
    if is_interrupted and not arm_runs:
        raise KeyboardInterrupt
    comparison = _make_comparison(wanted, arm_runs, began, count, is_interrupted=is_interrupted, report=path)
    _remark_recordings(jobs, arm_runs)
    shown = {each: drawn(comparison, is_dark=bool(number)) for number, each in enumerate(pictures)}
    unwritten = _write_files({path.with_suffix(".json"): _json(comparison), **shown})
    run = keep_comparison(runs, comparison, wanted.shared.assignments, options.file)
    page = comparison_page(comparison)
    unwritten = unwritten or _write_files({path: page.text})
    _print(comparison, output, run, page.recorded)
    if unwritten:
        fail(unwritten)
    if is_interrupted:
        goes_on = "the same command goes on from there" if kept else "with --record FILE the same command would go on"
        click.echo(f"{len(arm_runs)} of {count_text(len(jobs), 'run')}; {goes_on}", err=True)
        raise KeyboardInterrupt
    return EXIT_OK if comparison.passed else EXIT_FAILED


def _comparison_request(options: CompareOptions) -> ComparisonRequest:
    """Return the comparison that the options mean; what cannot be run ends the command with one line."""
    server, containers, recording = options.server, options.containers, options.recording
    if (server or containers) and (options.processes or options.workers > 1):
        fail("--server and --containers use a mesh that runs already, and make one run after the other")
    if (server or containers) and recording is not None:
        fail("--recording needs simulated runs or runs with processes of their own; a running mesh has `keplab record`")
    with refusing(ScriptError, SwitchError):
        shared = Switches.parse(options.assignments)
        scenario, parsed = load_scenario(options.file), parse_arms(options.arms)
    access = running_mesh(server, containers)
    own = access.switches if access is not None else ()
    with refusing(ScriptError, SwitchError):
        of_arms = tuple(
            Switches.parse([*own, *scenario.switches]).replace({**shared.chosen_values, **arm.switches})
            for arm in parsed
        )
        plans = [
            plan_of(scenario, seed=options.seed, overrides={**shared.chosen_values, **arm.switches}) for arm in parsed
        ]
    for arm, plan in zip(parsed, plans, strict=True):
        if access is not None and (why := refusal(plan, access)):
            fail(f"{scenario.path}: arm {arm.name}: {why}")
    for arm, switches in zip(parsed, of_arms, strict=True) if not scenario.has_skew else ():
        remark(switches, f"arm {arm.name}")
    if any(arm.switches for arm in parsed):
        _remark_equal(parsed, of_arms)
    return ComparisonRequest(
        file=options.file,
        called=path_in_command(options.file),
        scenario=scenario,
        arms=tuple(parsed),
        shared=shared,
        of_arms=of_arms,
        seeds=options.seeds,
        seed=options.seed,
        processes=options.processes,
        access=access,
        recording=recording,
    )


def _remark_equal(arms: Sequence[Arm], of_arms: Sequence[Switches]) -> None:
    """Say which arms have equal switches although what was typed differs: the scenario or a default says the same."""
    for number, (arm, switches) in enumerate(zip(arms, of_arms, strict=True)):
        for earlier, others in zip(arms[:number], of_arms, strict=False):
            if arm.switches != earlier.switches and switches == others:
                own = ", ".join({**earlier.switches, **arm.switches})
                click.secho(
                    f"keplab: arms {earlier.name} and {arm.name} have the same switches: what one sets "
                    f"({own}), the other has from the scenario or by default",
                    err=True,
                    fg="yellow",
                )


class _Began(NamedTuple):
    """Start time of the command, and the machine's load at that time."""

    at: datetime
    monotonic_s: float
    load_1min: float | None

    @classmethod
    def now(cls) -> "_Began":
        return cls(datetime.now(UTC), time.monotonic(), os.getloadavg()[0] if hasattr(os, "getloadavg") else None)


def _make_comparison(
    wanted: ComparisonRequest,
    arm_runs: Sequence[ArmRun],
    began: _Began,
    workers: int,
    *,
    is_interrupted: bool,
    report: Path,
) -> Comparison:
    """Return the document of these runs."""
    made_by = revision()
    others = {name: digest for name, digest in wanted.inputs.items() if name != wanted.file.name}
    return comparison_of(
        [(arm.name, arm.assignments) for arm in wanted.arms],
        arm_runs,
        stated=tuple(each.measure for each in measures_of(wanted.scenario)),
        planned=len(wanted.arms) * wanted.seeds,
        mode=wanted.mode,
        scenario=wanted.scenario.name,
        title=wanted.scenario.title,
        about=wanted.scenario.about,
        switches=wanted.switch_rows(),
        provenance=Provenance(
            command=wanted.command(),
            scenario_path=wanted.called,
            scenario_sha256=wanted.inputs[wanted.file.name],
            inputs=others,
            revision=made_by.commit,
            is_dirty=bool(made_by.changes),
            version=made_by.version,
            python=platform.python_version(),
            platform=platform.platform(),
            cpus=os.cpu_count() or 1,
            workers=workers,
            started=began.at.isoformat(timespec="seconds"),
            wall_s=round(time.monotonic() - began.monotonic_s, 3),
            load_1min=began.load_1min,
            set=list(wanted.shared.assignments),
            mesh=wanted.mesh,
        ),
        is_interrupted=is_interrupted,
        report=str(report),
        recordings=str(wanted.recording) if wanted.recording is not None else "",
    )


def _remark_recordings(jobs: Sequence[ArmJob], found: Sequence[ArmRun]) -> None:
    """Say in a line each which runs are not recorded, or not to their end."""
    made = {(run.arm, run.run.seed) for run in found}
    for job in jobs:
        if job.recording and (job.arm, job.seed) in made and not Path(job.recording).is_file():
            what = "ends early: no space" if Path(job.recording).exists() else "is not there"
            click.secho(f"keplab: the recording {job.recording} {what}", err=True, fg="yellow")


@contextmanager
def _open_record(record: Path | None, header: Header) -> Iterator[Record | None]:
    """Hold the record open, if there is to be one; what is wrong with it is one line and exit code 2."""
    if record is None:
        yield None
        return
    try:
        kept = Record(record, header)
    except RecordError as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot write the record {record}: {error.strerror}")
    try:
        yield kept
    finally:
        kept.close()


def _run_all(jobs: Sequence[ArmJob], kept: Record | None, workers: int, *, is_alone: bool) -> tuple[list[ArmRun], bool]:
    """Return the runs, those of the record first, and whether Ctrl-C cut it short."""
    known = kept.known if kept is not None else {}
    arm_runs = [known[job.arm, job.seed] for job in jobs if (job.arm, job.seed) in known]
    left = [job for job in jobs if (job.arm, job.seed) not in known]
    with RunsBar(len(jobs), done=len(arm_runs), is_alone=is_alone) as bar:

        def run_here(job: ArmJob) -> ArmRun:
            return run_arm_showing(job, bar.following(f"{job.arm}, seed {job.seed}"))

        try:
            for arm_run in runs_of(run_here if workers == 1 else run_arm, left, workers, in_order=False):
                if arm_run.is_mistake:
                    fail(f"arm {arm_run.arm}, seed {arm_run.run.seed}: {arm_run.run.error}")
                arm_runs.append(arm_run)
                bar.advance(is_failed=bool(arm_run.run.error or arm_run.run.violations))
                if kept is not None:
                    kept.add(arm_run)
        except KeyboardInterrupt:
            return arm_runs, True
        except OSError as error:
            fail(f"cannot write the record: {error.strerror}")
    return arm_runs, False


def _writable(path: Path, *pictures: Path) -> None:
    """Find out before the runs whether what they show can be written."""
    if path.suffix == ".json":
        fail(f"{path} is where the JSON document goes; want the page's name, for example {path.with_suffix('.html')}")
    for file in (path, path.with_suffix(".json"), *pictures):
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            is_new = not file.exists()
            file.open("ab").close()
            if is_new:
                file.unlink()
        except OSError as error:
            fail(f"cannot write {file}: {error.strerror}")


def _write_files(texts: Mapping[Path, str]) -> str:
    """Write files; return why not, or nothing."""
    for path, written in texts.items():
        try:
            path.write_text(written, encoding="utf-8")
        except OSError as error:
            return f"cannot write {path}: {error.strerror}"
    return ""


def _json(made: Comparison) -> str:
    return msgspec.json.format(msgspec.json.encode(made), indent=1).decode() + "\n"


def _print(comparison: Comparison, output: str, run: str, recorded: str) -> None:
    match output:
        case "json":
            print_json(document_of(comparison))
        case "markdown":
            click.echo(markdown(comparison), nl=False)
        case "csv":
            click.echo(csv_rows(comparison), nl=False)
        case _:
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
            click.echo(text(comparison, width), nl=False)
            click.echo(f"report: {comparison.report}" + (f", run {run}" if run else ""))
            if recorded:
                click.echo(recorded)
