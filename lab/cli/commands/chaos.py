"""`keplab chaos`: run a scenario under random faults, with many seeds."""

from pathlib import Path

import click

from lab.chaos.run import ChaosJob, digest_elsewhere, run_seed
from lab.cli.live import console, progress_bar
from lab.cli.output import EXIT_FAILED, output_option, print_json, refusing, set_option
from lab.cli.run_options import sweep_options
from lab.cli.scenario_files import SCENARIO
from lab.cli.sweep import FAILED, failures, show, sweep
from lab.scenarios.loading import load_scenario
from lab.scenarios.script.scenario import ScriptError
from services.api.switches import SwitchError, Switches


@click.command(
    "chaos",
    epilog="""\b
Examples:
  keplab chaos experiments/crashes/killed-scheduler.txt --seeds 50
  keplab chaos experiments/runaway/runaway.txt --set kubelet.on_reject=unbind --seeds 1000 --record runs/seeds.jsonl
  keplab chaos experiments/jobs/three-kinds.txt --seeds 100 --workers 2
  keplab chaos experiments/runaway/runaway.txt --seed 17 --seeds 1          (replays one seed)""",
)
@click.argument("file", type=SCENARIO)
@click.option("--seeds", type=click.IntRange(1, 1_000_000), default=20, show_default=True, help="number of seeds")
@click.option("--seed", type=int, default=0, show_default=True, help="first seed")
@set_option
@click.option("--no-rest", is_flag=True, help="judge safety only: this arm never comes to rest")
@click.option(
    "--repeat",
    type=click.IntRange(0, 1000),
    default=0,
    help="number of fresh interpreters over which digests are compared",
)
@sweep_options
@output_option
def chaos(
    file: Path,
    seeds: int,
    seed: int,
    assignments: tuple[str, ...],
    no_rest: bool,
    record: Path | None,
    repeat: int,
    workers: int,
    output: str,
) -> None:
    """Run a scenario while components are killed and links break.

    The command runs FILE once for each seed, and judges the invariants and the end state.
    """
    with refusing(ScriptError, SwitchError):
        load_scenario(file)
        Switches.parse(assignments)
    quiet = output == "json"
    jobs = [ChaosJob(str(file), tuple(assignments), number, not no_rest) for number in range(seed, seed + seeds)]
    outcomes, is_interrupted = sweep(jobs, record, workers, run_seed, what="seeds", quiet=quiet)
    failed = failures(outcomes)
    digests = set() if is_interrupted else _digests_elsewhere(jobs[0], repeat, quiet=quiet)
    differs = bool(digests) and digests != {next(o.digest for o in outcomes if o.seed == seed)}
    if quiet:
        print_json(
            {
                "scenario": str(file),
                "seeds": len(outcomes),
                "failed": failed,
                "digests": sorted(digests),
                "interrupted": is_interrupted,
            }
        )
    else:
        show(outcomes, "seeds")
        if digests:
            result = f"{len(digests)} different digests" if differs else "the same digest each time"
            console.print(f"seed {seed} again in {repeat} fresh interpreters: {result}")
    if is_interrupted:
        raise KeyboardInterrupt
    raise SystemExit(EXIT_FAILED if failed or differs else 0)


def _digests_elsewhere(job: ChaosJob, repeat: int, *, quiet: bool) -> set[str]:
    digests: set[str] = set()
    if repeat:
        with progress_bar("again", FAILED, quiet=quiet) as progress:
            task = progress.add_task("", total=repeat, failed=0)
            for number in range(repeat):
                digests.add(digest_elsewhere(job, number))
                progress.update(task, advance=1, failed=len(digests) - 1)
    return digests
