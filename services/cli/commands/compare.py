"""`keplab compare`: one scenario, several arms, the same seeds."""

from pathlib import Path

import click

from services.api.switches import SwitchError, Switches
from services.cli.live import PodsView, console
from services.cli.output import EXIT_FAILED, fail, output_option, print_json, print_table, refusing, remark
from services.experiments.compare import Arm, Comparison, compare, parse_arms
from services.experiments.report import page, rows
from services.scenarios.result import RunResult
from services.scenarios.run import load_scenario, run_as_processes, simulate
from services.scenarios.script.scenario import ScriptError


@click.command(
    "compare",
    epilog="""\b
Examples:
  keplab compare experiments/runaway/runaway.txt \\
    --arm fail:kubelet.on_reject=fail --arm unbind:kubelet.on_reject=unbind
  keplab compare experiments/runaway/runaway.txt --arm a --arm b      (A/A: no difference)
  keplab compare FILE --arm hard:scheduler.exclusion=hard --arm soft:scheduler.exclusion=soft --seeds 20""",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--arm", "arms", multiple=True, required=True, metavar="NAME:SWITCH=VALUE[,…]", help="an alternative")
@click.option("--seeds", type=click.IntRange(1, 10_000), default=1, show_default=True, help="runs an arm")
@click.option("--seed", type=int, default=0, show_default=True, help="the first seed")
@click.option("--processes", is_flag=True, help="real processes over gRPC instead of the simulation")
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="a switch that all arms share")
@click.option("--report", type=click.Path(path_type=Path), help="where the HTML page goes")
@output_option
def COMMAND(  # noqa: N802
    file: Path,
    arms: tuple[str, ...],
    seeds: int,
    seed: int,
    processes: bool,
    assignments: tuple[str, ...],
    report: Path | None,
    output: str,
) -> None:
    """Run a scenario in several arms and show what differs.

    FILE is run once an arm and seed; a table is printed, a page written, and the pods whose fate differs are listed.
    """
    shared = Switches.parse(assignments).chosen
    with refusing(ScriptError, SwitchError):
        scenario, parsed = load_scenario(file), parse_arms(arms)
        for arm in parsed if not scenario.has_skew else ():
            remark(Switches.parse(scenario.switches).replace({**shared, **arm.switches}), f"arm {arm.name}")
    quiet = output == "json"

    def run_one(arm: Arm, number: int) -> RunResult:
        overrides = {**shared, **arm.switches}
        with PodsView(f"{scenario.name} · {arm.name} · seed {number}", quiet=quiet) as view:
            if processes:
                return run_as_processes(scenario, seed=number, overrides=overrides, progress=view.progress)
            return simulate(scenario, seed=number, overrides=overrides, progress=view.progress)

    mode = "processes" if processes else "simulated"
    with refusing(ScriptError, SwitchError):
        made = compare(scenario.name, mode, parsed, range(seed, seed + seeds), run_one)
    path = report or Path("runs") / f"{scenario.name}.html"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(made, scenario.title, scenario.about))
    except OSError as error:
        fail(f"cannot write the report {path}: {error.strerror}")
    if quiet:
        print_json(made.document(str(path)))
    else:
        _show(made, path)
    raise SystemExit(0 if made.passed else EXIT_FAILED)


def _show(made: Comparison, path: Path) -> None:
    print_table(["", *(arm.name for arm, _ in made.arms)], [(label, *cells) for label, cells in rows(made)], texts=1)
    for arm, runs in made.arms:
        for run in runs:
            for problem in [run.error, *(f"{v.invariant}: {v.detail}" for v in run.violations[:3])]:
                if problem:
                    console.print(f"{arm.name}, seed {run.seed}: {problem}", markup=False)
    if len(made.arms) > 1:
        what = f"{made.difference_count} pods differ" if made.difference_count else "no pod's fate differs"
        console.print(f"Pod by pod: {what}.")
    console.print(f"Report: {path}", markup=False)
