"""`keplab explore`: run a scenario under many orders of its messages."""

from pathlib import Path
from typing import Any

import click
import msgspec

from lab.cli.live import console, progress_bar
from lab.cli.output import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    fail,
    output_option,
    print_json,
    print_table,
    refusing,
    set_option,
    write_file,
)
from lab.cli.run_options import workers_option
from lab.cli.scenario_files import SCENARIO
from lab.experiments.wording import count_text
from lab.explore.diagram import hold_text, short, steps_of, text_diagram
from lab.explore.moments import Event, EventError, nameable, parse_event
from lab.explore.picture import svg_diagram
from lab.explore.recorder import Finding, Trial
from lab.explore.replay import ReplayError, overtaken_by, read_replay, write_replay
from lab.explore.search import Report, Task, record, run_replay
from lab.explore.search import explore as search_orders
from lab.scenarios.loading import load_scenario
from lab.scenarios.script.scenario import ScriptError
from lab.scenarios.script.value_types import parse_duration
from services.api.switches import Switches


class _Duration(click.ParamType[float]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return value if isinstance(value, float) else parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command(
    "explore",
    epilog="""\b
Examples:
  keplab explore experiments/races/freed-capacity.txt --around list
  keplab explore experiments/races/freed-capacity.txt --around ev=sched.bind_call,obj=p --budget 200
  keplab explore FILE --around kubelet.stop,n=1 --window 2s --seeds 5 --save race.json --svg race.svg
  keplab explore --replay race.json""",
)
@click.argument("file", type=SCENARIO, required=False)
@click.option(
    "--around",
    metavar="EVENT",
    help="event to search around: ev=NAME[,obj=GLOB][,comp=…][,node=…][,data.KEY=…][,n=N]; list prints the events",
)
@click.option(
    "--budget", type=click.IntRange(1, 1_000_000), default=200, show_default=True, help="limit on the number of runs"
)
@click.option(
    "--window",
    type=_Duration(),
    default="1s",
    show_default=True,
    help="length of time around each moment; a message is held for half of it at most",
)
@click.option("--seeds", type=click.IntRange(1, 1000), default=1, show_default=True, help="number of seeds")
@click.option("--seed", type=int, default=0, show_default=True, help="first seed")
@click.option(
    "--depth", type=click.IntRange(1, 20), default=3, show_default=True, help="limit on the messages held at once"
)
@click.option("--first", is_flag=True, help="stop at the first schedule that breaks FILE")
@workers_option
@click.option(
    "--save", type=click.Path(dir_okay=False, path_type=Path), help="file to write the schedule to, for --replay"
)
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="file to draw the schedule into")
@click.option("--replay", type=click.Path(path_type=Path), help="schedule of --save to run again, instead of a search")
@set_option
@output_option
def explore(
    file: Path | None,
    around: str | None,
    budget: int,
    window: float,
    seeds: int,
    seed: int,
    depth: int,
    first: bool,
    workers: int,
    save: Path | None,
    svg: Path | None,
    replay: Path | None,
    assignments: tuple[str, ...],
    output: str,
) -> None:
    """Run a scenario in other orders of the same messages.

    Each run holds back a few other messages around EVENT. The output shows the smallest set of messages that breaks
    FILE. The exit code is 1 when FILE breaks, 2 when FILE or EVENT is wrong.
    """
    Switches.parse(assignments)
    if replay is not None:
        raise SystemExit(_replay(file, replay, svg, output))
    if file is None or around is None:
        fail("want a scenario FILE and --around EVENT (or --around list), or --replay FILE")
    with refusing(ScriptError, EventError):
        load_scenario(file)
        if around == "list":
            _list(Trial(str(file), seed, assignments), output)
            return
        event, numbers = parse_event(around), tuple(range(seed, seed + seeds))
        task = Task(str(file), event, budget, numbers, assignments, window / 2, depth, first, workers)
        report = _explore(task, quiet=output == "json")
    for number, finding in enumerate(report.found):
        if save is not None:
            write_file(_numbered_path(save, number), write_replay(finding, around))
        if svg is not None:
            write_file(_numbered_path(svg, number), _picture(finding))
    if output == "json":
        print_json(document(report, event))
    else:
        _show(report, save)
    if report.is_interrupted:
        raise SystemExit(EXIT_INTERRUPTED)
    raise SystemExit(EXIT_FAILED if report.found else EXIT_OK)


def _list(trial: Trial, output: str) -> None:
    found = nameable(record(trial).lines)
    if output == "json":
        print_json([msgspec.to_builtins(each) for each in found])
        return
    rows = [(n.name, ", ".join(n.components), n.example, n.count, f"{n.first_s:.3f}") for n in found]
    print_table(["event", "by", "first about", "times", "first at s"], rows, texts=3)


def _explore(task: Task, *, quiet: bool) -> Report:
    with progress_bar("runs", "{task.fields[found]} found", quiet=quiet) as shown:
        bar = shown.add_task("", total=task.budget, found=0)

        def progress(done: int, total: int, found: int) -> None:
            shown.update(bar, completed=done, total=total, found=found)

        return search_orders(task, progress)


def _numbered_path(path: Path, number: int) -> Path:
    """Return the file of the n-th thing found: race.json, then race-2.json."""
    return path if number == 0 else path.with_name(f"{path.stem}-{number + 1}{path.suffix}")


def _picture(found: Finding) -> str:
    holds = "; ".join(f"{short(hold.delivery)} held {hold_text(hold.held_s)}" for hold in found.schedule)
    scenario = load_scenario(found.run.trial.scenario)
    title = f"{scenario.title or scenario.name}: {found.broke.broke or 'nothing'} breaks"
    return svg_diagram(steps_of(found.run, found.broke), title, holds or "undisturbed")


def document(report: Report, event: Event) -> dict[str, Any]:
    """Return the JSON document of `keplab explore -o json`."""
    return {
        "scenario": report.task.scenario,
        "around": event.text,
        "runs": report.runs,
        "is_interrupted": report.is_interrupted,
        "shrink_runs": report.shrink_runs,
        "moments": [{"seed": seed, "at": round(at_s, 6)} for seed, at_s in report.moments],
        "deliveries": report.candidates,
        "found": [_found_document(found) for found in report.found],
    }


def _found_document(finding: Finding) -> dict[str, Any]:
    steps = steps_of(finding.run, finding.broke)
    return {
        "broke": finding.broke.broke,
        "detail": finding.broke.detail,
        "objects": list(finding.broke.objects),
        "at": round(finding.broke.at_s, 6),
        "also": list(finding.also),
        "seed": finding.run.trial.seed,
        "times": finding.count,
        "digest": finding.run.result.digest,
        "schedule": [{"delivery": hold.delivery, "held_s": hold.held_s} for hold in finding.schedule],
        "found_with": len(finding.first),
        "steps": [
            {
                "at": round(s.at_s, 6),
                "kind": s.kind,
                "from": s.source,
                "to": s.target,
                "what": s.text,
                "held_s": s.held_s,
            }
            for s in steps
        ],
    }


def _show(report: Report, save: Path | None) -> None:
    for number, finding in enumerate(report.found):
        _show_found(finding)
        if save is not None:
            console.print(f"  keplab explore --replay {_numbered_path(save, number)}", markup=False)
        console.print()
    if report.is_interrupted:
        what = f"interrupted, {len(report.found) or 'nothing'} found"
    else:
        what = f"{len(report.found)} found" if report.found else "nothing breaks"
    shrunk = f" and {report.shrink_runs} to shrink them" if report.shrink_runs else ""
    console.print(
        f"{what} in {count_text(report.runs, 'run')}{shrunk}, {count_text(len(report.moments), 'moment')}, "
        f"{count_text(report.candidates, 'message')} that could be held",
        markup=False,
    )


def _show_found(finding: Finding) -> None:
    console.print("[red]✗[/] ", end="")
    objects = f" {', '.join(finding.broke.objects)}" if finding.broke.objects else ""
    console.print(f"{finding.broke.broke} at {finding.broke.at_s:.3f} s{objects}: {finding.broke.detail}", markup=False)
    if not finding.schedule:
        console.print(f"  undisturbed, seed {finding.run.trial.seed}: no message has to be held", markup=False)
    for hold in finding.schedule:
        console.print(f"  held {hold_text(hold.held_s)}: {hold.delivery}", markup=False)
        if past := overtaken_by(finding.run, hold):
            console.print(f"    overtaken by {past}", markup=False)
    also = f", with {', '.join(finding.also)}" if finding.also else ""
    console.print(f"  in {finding.count} of the runs{also}, seed {finding.run.trial.seed}\n", markup=False)
    for line in text_diagram(steps_of(finding.run, finding.broke)):
        console.print(f"  {line}", markup=False, soft_wrap=True)


def _replay(file: Path | None, path: Path, svg: Path | None, output: str) -> int:
    with refusing(ReplayError, ScriptError):
        saved = read_replay(path)
        finding, is_same = run_replay(saved, str(file) if file is not None else "")
    if svg is not None:
        write_file(svg, _picture(finding))
    if output == "json":
        print_json({"scenario": saved.scenario, "same_digest": is_same, **_found_document(finding)})
    else:
        _show_found(finding)
        digest, known = finding.run.result.digest[:16], saved.digest[:16]
        again = f"the same run again, digest {digest}" if is_same else f"another run: digest {digest}, not {known}"
        console.print(f"\n{again}")
    return EXIT_FAILED if finding.broke.broke else EXIT_OK
