"""`keplab replay`: a recording again, in a mesh that runs or in virtual time, once or in several arms."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from services.api.errors import UnknownOutcome
from services.api.identity import SCHEDULER
from services.api.switches import SwitchError, Switches
from services.cli import completing
from services.cli.commands import compare
from services.cli.commands.import_objects import scenario_text
from services.cli.exchange import (
    format_option,
    loaded_document,
    mesh_client,
    played_document,
    say_guess,
    show_loaded,
    show_played,
    source_of,
)
from services.cli.live import PodsView
from services.cli.output import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_USAGE,
    data_option,
    fail,
    output_option,
    print_json,
    refusing,
    set_option,
)
from services.cli.results import show_result
from services.cli.sweep import workers_option
from services.exchange.format import Reading, open_stream
from services.exchange.load import Loader
from services.exchange.player import Player
from services.exchange.reading import Source
from services.exchange.rules import Rules
from services.exchange.stream import Refused
from services.runtime.config import MeshError
from services.runtime.real import RealClock
from services.scenarios.past import StateError
from services.scenarios.run import load_scenario, simulate
from services.scenarios.script.play_verbs import read_speed
from services.scenarios.script.scenario import ScriptError
from services.scenarios.script.value_types import parse_duration

EPILOG = """\
\b
Examples:
  keplab replay day.yaml                                      in the mesh that runs, as fast as it was
  keplab replay day.yaml --speed 10
  keplab replay day.yaml --virtual                            in virtual time: a day takes seconds
  keplab replay day.yaml --virtual --fault faults.txt         lines of a scenario, run beside it
  keplab replay day.yaml --arm a:scheduler.exclusion=soft --arm b:scheduler.exclusion=hard

\b
The mesh decides anew what its components did in the recording: nodes and statuses of pods, endpoints, objects that
others own; --pods as-they-are binds pods as they were bound. In virtual time the mesh begins from the
recording's snapshot.
"""


@click.command("replay", epilog=EPILOG)
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--speed", default="1", show_default=True, metavar="N|max", help="seconds of the recording in one second")
@click.option("--virtual", is_flag=True, help="simulate a mesh that begins from the recording's snapshot")
@click.option(
    "--fault",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="lines of a scenario that are run beside it, in virtual time",
)
@click.option(
    "--arm",
    "arms",
    multiple=True,
    shell_complete=completing.arms,
    metavar="NAME:SWITCH=VALUE[,…]",
    help="an alternative; in virtual time",
)
@click.option("--seeds", type=click.IntRange(1, 10_000), default=1, show_default=True, help="runs an arm")
@click.option("--seed", type=int, default=0, show_default=True, help="of virtual time; the first one of arms")
@click.option(
    "--pods",
    type=click.Choice(["pending", "as-they-are"]),
    default="pending",
    show_default=True,
    help="the mesh decides where pods run, or they are bound as they were",
)
@click.option("--for", "after", default="10s", show_default=True, help="how long virtual time goes on after the end")
@format_option("the file's format [known by its content]")
@click.option("--lenient", is_flag=True, help="leave out and count what cannot be read or made")
@workers_option
@click.option("--report", type=click.Path(path_type=Path), help="where the page of a comparison goes")
@set_option
@data_option
@output_option
@click.pass_context
def COMMAND(  # noqa: N802
    context: click.Context,
    file: Path,
    speed: str,
    virtual: bool,
    fault: Path | None,
    arms: tuple[str, ...],
    seeds: int,
    seed: int,
    pods: str,
    after: str,
    format_name: str | None,
    lenient: bool,
    workers: int,
    report: Path | None,
    assignments: tuple[str, ...],
    data: Path,
    output: str,
) -> int:
    """Play a recording, in a mesh that runs or in virtual time.

    Its objects are loaded first, then each change is made at its moment. The exit code is 1 when something could not be
    loaded or made, or when in virtual time an invariant broke.
    """
    with refusing(Refused, ScriptError, SwitchError, StateError, ValueError):
        try:
            fast = read_speed(speed)
        except ValueError as error:
            fail(f"--speed {speed}: {error}")
        try:
            parse_duration(after)
        except ValueError as error:
            fail(f"--for {error}")
        source = source_of(file)
        if not (virtual or arms):
            if fault is not None or assignments:
                fail(f"{'--fault' if fault else '--set'} is for virtual time; say --virtual as well")
            try:
                return asyncio.run(_live(source, format_name, fast, pods, lenient, data, output))
            except UnknownOutcome as error:
                fail(f"the mesh on {data}: {error}", EXIT_FAILED)
        if lenient:
            fail("--lenient is for a mesh that runs; in virtual time a recording is read whole")
        with _as_scenario(source, format_name, speed, pods, fault, after) as scenario:
            if arms:
                return int(
                    context.invoke(
                        compare.COMMAND,
                        file=scenario,
                        arms=arms,
                        seeds=seeds,
                        seed=seed,
                        assignments=assignments,
                        report=report or Path("runs") / f"{source.path.stem}.html",
                        workers=workers,
                        output=output,
                    )
                    or EXIT_OK
                )
            return _virtual(scenario, seed, assignments, output)


async def _live(
    source: Source, format_name: str | None, speed: float, pods: str, lenient: bool, data: Path, output: str
) -> int:
    clock = RealClock()
    rules = Rules("pending" if pods == "pending" else "as-they-are")
    async with mesh_client(data) as client, mesh_client(data, SCHEDULER) as binder:
        began = clock.wall()
        found, stream = open_stream(source, Reading(began, lenient), format_name or "")
        say_guess(source, found, format_name)
        loaded = await Loader(client, rules).load(stream.objects)
        player = Player(client, clock, rules, speed=speed, loaded=loaded, is_lenient=lenient, binder=binder)
        try:
            played = await player.play(stream.changes)
        except asyncio.CancelledError:
            if output == "text":
                click.echo("interrupted", err=True)
                show_played(player.played)
            raise
    if output == "json":
        print_json({"loaded": loaded_document(loaded), "played": played_document(played), "notes": stream.notes})
    else:
        show_loaded(loaded)
        show_played(played)
        for what, count in stream.notes.items():
            click.echo(f"  left out: {count} {what}")
    return EXIT_FAILED if loaded.failures or played.failures else EXIT_OK


@contextmanager
def _as_scenario(
    source: Source, format_name: str | None, speed: str, pods: str, fault: Path | None, after: str
) -> Iterator[Path]:
    """Give the scenario that replays a file: it lies beside a link to it. Raises: Refused: the file cannot be read."""
    found, stream = open_stream(source, Reading(), format_name or "")
    say_guess(source, found, format_name)
    for _ in stream.objects:
        pass
    has_changes = next(stream.changes, None) is not None
    with tempfile.TemporaryDirectory(prefix="keplab-replay-") as folder:
        place = Path(folder)
        name = "".join(sign if sign.isalnum() or sign in "._-" else "-" for sign in source.path.name)
        (place / name).symlink_to(source.path.absolute())
        text = scenario_text(name, found.name, pods, speed, has_changes=has_changes, after=after)
        if fault is not None:
            beside = text.replace(f"format={found.name}\nwait", f"format={found.name} beside=yes\nwait", 1)
            head, _, tail = beside.rpartition("wait ")
            text = f"{head}{_lines(fault)}\n" + ("played\n" if has_changes else "") + f"wait {tail}"
        scenario = place / f"{source.path.stem}.txt"
        if scenario.name == name:
            scenario = place / f"{source.path.stem}-replay.txt"
        scenario.write_text(text, "utf-8")
        yield scenario


def _lines(fault: Path) -> str:
    try:
        return fault.read_text("utf-8").rstrip()
    except (OSError, UnicodeError) as error:
        raise Refused(f"--fault {fault}: {getattr(error, 'strerror', None) or error}") from None


def _virtual(path: Path, seed: int, assignments: tuple[str, ...], output: str) -> int:
    scenario = load_scenario(path)
    with PodsView(scenario.name, quiet=output == "json") as view:
        try:
            overrides = Switches.parse(assignments).chosen
            result = simulate(scenario, seed=seed, overrides=overrides, progress=view.progress)
        except MeshError as error:
            fail(f"the mesh of {scenario.name} cannot start: {error}", EXIT_FAILED)
    if output == "json":
        print_json(result.document())
    else:
        show_result(result, scenario.title)
    return EXIT_USAGE if result.is_mistake else EXIT_OK if result.passed else EXIT_FAILED
