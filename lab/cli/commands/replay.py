"""`keplab replay`: play a recording again, in a running mesh or in virtual time, once or in several arms."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from lab.cli import completing
from lab.cli.commands.import_objects import scenario_text
from lab.cli.exchange.files import (
    anonymise_option,
    anonymised_copy,
    client_of,
    controllers_paused,
    format_option,
    loaded_document,
    mesh_api,
    mesh_client,
    options_of,
    options_option,
    played_document,
    say_guess,
    show_loaded,
    show_notes,
    show_played,
    source_of,
)
from lab.cli.live import PodsView
from lab.cli.output import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_USAGE,
    data_option,
    fail,
    output_option,
    print_json,
    refusing,
    set_option,
    takes,
)
from lab.cli.results import show_result
from lab.cli.run_options import workers_option
from lab.exchange.format import Reading, format_named, format_of, open_stream
from lab.exchange.hooks import Hook, hooks_of
from lab.exchange.load import Loader
from lab.exchange.player import Player
from lab.exchange.reading import Source
from lab.exchange.rules import Counted, Rules
from lab.exchange.stream import Refused, Stream
from lab.exchange.traces.lifecycles import LifecycleGate
from lab.scenarios.initial_state import StateError
from lab.scenarios.loading import load_scenario
from lab.scenarios.run import simulate
from lab.scenarios.script.play_verbs import read_speed
from lab.scenarios.script.scenario import ScriptError
from lab.scenarios.script.value_types import parse_duration
from services.api.errors import UnknownOutcome
from services.api.identity import SCHEDULER
from services.api.resources import resource_of_kind
from services.api.switches import SwitchError, Switches
from services.runtime.config import MeshError
from services.runtime.real import RealClock, seeded_random

EPILOG = """\
\b
Examples:
  keplab replay day.yaml                                      in the mesh that runs, as fast as it was
  keplab replay day.yaml --speed 10
  keplab replay day.yaml --virtual                            in virtual time: a day takes seconds
  keplab replay day.yaml --virtual --fault faults.txt         lines of a scenario, run beside it
  keplab replay day.yaml --arm a:scheduler.exclusion=soft --arm b:scheduler.exclusion=hard
  keplab replay cronjob.sktrace --nodes '20 cpu=16 memory=64Gi'   of SimKube, in virtual time unless --live
  keplab replay cronjob.sktrace --namespace-prefix virtual -D 1h

\b
The mesh decides anew what its components did in the recording: nodes and statuses of pods, endpoints, and objects with
owners; --pods as-they-are binds pods as they were bound. In virtual time the mesh begins from the recording's snapshot.
"""
NODES_DEFAULT = "10 cpu=32 memory=128Gi"


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """Options of a replay, one field an option or argument, as click parses it.

    `speed`: seconds of the recording in one second, or `max`; `virtual`: whether in virtual time, None for the
    format's default. `nodes`: in the words of a scenario; `duration` and `after`: durations with their units.
    `options`: NAME=VALUE of the format; `salt`: the file that new names are made from, None to keep the names.
    `arms`: texts NAME:SWITCH=VALUE[,…], which are run with `seeds` seeds from `seed` on by that many `workers`, 0
    for as many as cores. `assignments`: NAME=VALUE of switches. A text that is "" was not given.
    """

    file: Path
    speed: str
    virtual: bool | None
    nodes: str
    namespace_prefix: str
    unroll: bool
    duration: str
    hooks: Path | None
    allow_hooks: bool
    options: tuple[str, ...]
    salt: Path | None
    fault: Path | None
    arms: tuple[str, ...]
    seeds: int
    seed: int
    pods: Literal["pending", "as-they-are"]
    after: str
    format_name: str | None
    lenient: bool
    workers: int
    report: Path | None
    assignments: tuple[str, ...]
    data: Path
    output: Literal["text", "json"]


@click.command("replay", epilog=EPILOG)
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--speed",
    default="1",
    show_default=True,
    metavar="N|max",
    help="seconds of the recording that are played in one second",
)
@click.option(
    "--virtual/--live",
    "virtual",
    default=None,
    help="simulate a mesh that begins from the recording's snapshot, or use the running mesh [--live; SimKube's "
    "traces: --virtual]",
)
@click.option(
    "--nodes",
    default="",
    metavar="'COUNT FIELD=VALUE…'",
    help=f"nodes for a file that has none, in the words of a scenario [{NODES_DEFAULT}]",
)
@click.option(
    "--namespace-prefix", default="", metavar="PREFIX", help="prefix for the names of namespaces (traces of SimKube)"
)
@click.option(
    "--unroll", is_flag=True, help="create bare pods for kinds that the mesh does not serve (traces of SimKube)"
)
@click.option(
    "-D", "--duration", default="", metavar="DURATION", help="time after which the replay ends (traces of SimKube)"
)
@click.option(
    "--hooks",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="file of commands to run before and after, as SimKube's hooks; needs --allow-hooks",
)
@click.option("--allow-hooks", is_flag=True, help="let hooks run commands on this machine")
@options_option
@anonymise_option
@click.option(
    "--fault",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="file of lines of a scenario to run beside the recording, in virtual time",
)
@click.option(
    "--arm",
    "arms",
    multiple=True,
    shell_complete=completing.arms,
    metavar="NAME:SWITCH=VALUE[,…]",
    help="arm of a comparison in virtual time: its name and its switches; may be repeated",
)
@click.option(
    "--seeds", type=click.IntRange(1, 10_000), default=1, show_default=True, help="number of runs of each arm"
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="seed of the simulation, or the first seed of the arms"
)
@click.option(
    "--pods",
    type=click.Choice(["pending", "as-they-are"]),
    default="pending",
    show_default=True,
    help="pending: the mesh decides where pods run; as-they-are: pods are bound as they were",
)
@click.option(
    "--for", "after", default="10s", show_default=True, help="virtual time that goes on after the end of the recording"
)
@format_option("format of the file [recognised by its content]")
@click.option(
    "--lenient", is_flag=True, help="leave out and count entries that cannot be read and changes that cannot be made"
)
@workers_option
@click.option("--report", type=click.Path(path_type=Path), help="path of the page of a comparison")
@set_option
@data_option
@output_option
@takes(ReplayOptions)
def replay(options: ReplayOptions) -> int:
    """Play a recording, in a running mesh or in virtual time.

    The command first loads the objects, then makes each change at its moment. The exit code is 1 when an object could
    not be loaded, a change could not be made, or an invariant broke in virtual time.
    """
    with refusing(Refused, ScriptError, SwitchError, StateError, ValueError):
        try:
            fast = read_speed(options.speed)
        except ValueError as error:
            fail(f"--speed {options.speed}: {error}")
        try:
            parse_duration(options.after)
        except ValueError as error:
            fail(f"--for {error}")
        asked = _replay_source(options)
        steps = _hooks(options.hooks, options.allow_hooks)
        is_virtual = options.virtual
        if is_virtual is None:
            is_virtual = format_named(asked.format).is_virtual or bool(options.arms)
        if not (is_virtual or options.arms):
            if options.fault is not None or options.assignments:
                fail(f"{'--fault' if options.fault else '--set'} needs virtual time; add --virtual")
            try:
                with steps:
                    return asyncio.run(_live(asked, fast, options.lenient, options.data, options.output))
            except UnknownOutcome as error:
                fail(f"the mesh on {options.data}: {error}", EXIT_FAILED)
        if options.lenient:
            fail("--lenient needs a running mesh; in virtual time a recording is read whole")
        with steps, _as_scenario(asked, options.fault) as scenario:
            if options.arms:
                return _run_compare(
                    options, scenario, options.report or Path("runs") / f"{asked.source.path.stem}.html"
                )
            return _virtual(scenario, options.seed, options.assignments, options.output)


def _run_compare(options: ReplayOptions, scenario: Path, page: Path) -> int:
    """Run `keplab compare` of a scenario that plays the recording; return its exit code."""
    context = click.get_current_context()
    keplab = context.find_root().command
    assert isinstance(keplab, click.Group), "keplab has commands"
    command = keplab.get_command(context, "compare")
    assert command is not None, "it is in the table"
    code = context.invoke(
        command,
        file=scenario,
        arms=options.arms,
        assignments=options.assignments,
        seeds=options.seeds,
        seed=options.seed,
        report=page,
        workers=options.workers,
        output=options.output,
    )
    return int(code or EXIT_OK)


@dataclass(frozen=True)
class _ReplaySource:
    """Source of a replay, and how it is played."""

    source: Source
    format: str
    given: str | None
    options: Mapping[str, str]
    pods: str
    speed: str
    after: str
    nodes: str

    def read_stream(self, began: float = 0.0, *, is_lenient: bool = False) -> Stream:
        """Return the stream from its beginning."""
        return open_stream(self.source, Reading(began, is_lenient, self.options), self.format)[1]


def _replay_source(options: ReplayOptions) -> _ReplaySource:
    """Return what is replayed. Raises: Refused, ValueError."""
    source, format_name, own = source_of(options.file), options.format_name, options_of(options.options)
    if options.salt is not None:
        source, format_name = anonymised_copy([source], options.salt, format_name or "", own), None
    texts = {
        "namespace-prefix": options.namespace_prefix,
        "unroll": "yes" if options.unroll else "",
        "duration": options.duration,
        **own,
    }
    return _ReplaySource(
        source=source,
        format=format_of(source, format_name or "").name,
        given=format_name,
        options={name: text for name, text in texts.items() if text},
        pods=options.pods,
        speed=options.speed,
        after=options.after,
        nodes=options.nodes,
    )


async def _live(asked: _ReplaySource, speed: float, lenient: bool, data: Path, output: str) -> int:
    clock = RealClock()
    async with mesh_api(data) as api, mesh_client(data, SCHEDULER) as binder:
        client = client_of(api)
        stream = asked.read_stream(clock.wall(), is_lenient=lenient)
        say_guess(asked.source, format_named(asked.format), asked.given)
        is_simulators = asked.format == "kss-record"
        rules = Rules(
            "pending" if asked.pods == "pending" else "as-they-are",
            keep_owners=not is_simulators,
            keeps_existing=is_simulators,
            has_kubelets=True,
        )
        async with controllers_paused(data) as noted:
            loaded = await Loader(client, rules).load(noted.of(stream.objects))
        player = Player(client, clock, rules, speed=speed, loaded=loaded, is_lenient=lenient, binder=binder)
        gate = LifecycleGate(api, clock, seeded_random(None), stream.runtimes, speed=speed) if stream.runtimes else None
        lives = asyncio.create_task(gate.run()) if gate is not None else None
        try:
            if gate is not None:
                await gate.wait_until_synced()
            played = await player.play(stream.changes)
            if lives is not None:
                # Owners go on making pods; who wants them longer says so.
                await asyncio.wait([lives], timeout=parse_duration(asked.after))
        except asyncio.CancelledError:
            if output == "text":
                click.echo("interrupted", err=True)
                show_played(player.played)
            raise
        finally:
            if lives is not None:
                lives.cancel()
                await asyncio.gather(lives, return_exceptions=True)
    if output == "json":
        print_json({"loaded": loaded_document(loaded), "played": played_document(played), "notes": stream.notes})
    else:
        show_loaded(loaded)
        show_played(played)
        show_notes(stream)
    return EXIT_FAILED if loaded.failures or played.failures else EXIT_OK


@contextmanager
def _as_scenario(asked: _ReplaySource, fault: Path | None) -> Iterator[Path]:
    """Give the scenario that replays a file: it lies beside a link to it. Raises: Refused: the file cannot be read."""
    source = asked.source
    stream = asked.read_stream()
    say_guess(source, format_named(asked.format), asked.given)
    has_nodes = False
    unknown = Counted()
    for entry in stream.objects:
        has_nodes = has_nodes or entry.document.get("kind") == "Node"
        if resource_of_kind(str(entry.document.get("apiVersion")), str(entry.document.get("kind"))) is None:
            unknown.add("of kinds that a simulated mesh does not serve", entry.name)
    for line in unknown.lines():
        click.echo(f"left out: {line}", err=True)
    if format_named(asked.format).is_virtual:
        # What is left out is counted by a reading to the end.
        has_changes = False
        for change in stream.changes:
            has_changes = True
            has_nodes = has_nodes or change.is_new_node
        show_notes(stream, err=True)
    else:
        has_changes = next(stream.changes, None) is not None
        has_nodes = True
    nodes = "" if has_nodes and not asked.nodes else _node_words(asked.nodes or NODES_DEFAULT)
    if nodes and not asked.nodes:
        click.echo(f"{source.file} has no nodes; assumed are {NODES_DEFAULT} (--nodes)", err=True)
    with tempfile.TemporaryDirectory(prefix="keplab-replay-") as folder:
        place = Path(folder)
        name = "".join(sign if sign.isalnum() or sign in "._-" else "-" for sign in source.path.name)
        (place / name).symlink_to(source.path.absolute())
        text = scenario_text(
            name,
            asked.format,
            asked.pods,
            asked.speed,
            has_changes=has_changes,
            after=asked.after,
            nodes=nodes,
            options=asked.options,
        )
        if fault is not None:
            head, _, tail = text.rpartition("wait ")
            beside = "\n".join(f"{line} beside=yes" if line.startswith("play ") else line for line in head.splitlines())
            text = f"{beside}\n{_lines(fault)}\n" + ("played\n" if has_changes else "") + f"wait {tail}"
        scenario = place / f"{source.path.stem}.txt"
        if scenario.name == name:
            scenario = place / f"{source.path.stem}-replay.txt"
        scenario.write_text(text, "utf-8")
        yield scenario


def _node_words(text: str) -> str:
    """Return `20 cpu=4` as a scenario names nodes. Raises: ValueError."""
    count, _, rest = text.strip().partition(" ")
    if not count.isdigit() or not 0 < int(count) <= 100_000:
        raise ValueError(f"--nodes {text}: want a number of nodes and their fields, such as '{NODES_DEFAULT}'")
    width = len(count)
    return f"{f'n{1:0{width}}..n{count}' if int(count) > 1 else 'n1'} {rest}"


@contextmanager
def _hooks(file: Path | None, is_allowed: bool) -> Iterator[None]:
    """Run the commands of a file of hooks before and after. Raises: Refused: it cannot be read, or one fails."""
    if file is None:
        yield
        return
    if not is_allowed:
        raise Refused(f"{file}: hooks run commands on this machine; add --allow-hooks to allow it")
    hooks = hooks_of(file)
    for stage in ("preStart", "preRun"):
        _run_hooks(hooks, stage)
    try:
        yield
    finally:
        for stage in ("postRun", "postStop"):
            _run_hooks(hooks, stage)


def _run_hooks(hooks: Mapping[str, Sequence[Hook]], stage: str) -> None:
    for hook in hooks.get(stage, ()):
        try:
            done = subprocess.run([hook.cmd, *hook.args], check=False)
            problem = f"it exited with {done.returncode}" if done.returncode else ""
        except OSError as error:
            problem = error.strerror or str(error)
        if problem and not hook.ignore_failure:
            raise Refused(f"hook {stage} {hook.cmd}: {problem}")


def _lines(fault: Path) -> str:
    try:
        return fault.read_text("utf-8").rstrip()
    except (OSError, UnicodeError) as error:
        raise Refused(f"--fault {fault}: {getattr(error, 'strerror', None) or error}") from None


def _virtual(path: Path, seed: int, assignments: tuple[str, ...], output: str) -> int:
    scenario = load_scenario(path)
    with PodsView(scenario.name, quiet=output == "json") as view:
        try:
            overrides = Switches.parse(assignments).chosen_values
            result = simulate(scenario, seed=seed, overrides=overrides, progress=view.progress)
        except MeshError as error:
            fail(f"the mesh of {scenario.name} cannot start: {error}", EXIT_FAILED)
    if output == "json":
        print_json(result.document())
    else:
        show_result(result, scenario.title)
    return EXIT_USAGE if result.is_mistake else EXIT_OK if result.passed else EXIT_FAILED
