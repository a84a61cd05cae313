"""`keplab fork`: run a simulation that begins from the state of a mesh."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import msgspec

from apiserver_fake.storage.records import Selection
from apiserver_fake.storage.store import Store
from lab.cli.live import PodsView
from lab.cli.mesh_state import state_of
from lab.cli.output import (
    DATA_DIR_DEFAULT,
    EXIT_FAILED,
    EXIT_OK,
    EXIT_USAGE,
    fail,
    output_option,
    print_json,
    print_table,
    refusing,
    set_option,
)
from lab.cli.results import show_result
from lab.cli.scenario_files import SCENARIO
from lab.experiments.wording import count_text
from lab.scenarios.initial_state import PODS, State, StateError, write_state
from lab.scenarios.loading import load_scenario
from lab.scenarios.run import simulate
from lab.scenarios.script.scenario import Scenario, ScriptError, parse_scenario
from lab.scenarios.script.value_types import parse_duration
from lab.scenarios.script.verbs import VERBS, check
from lab.scenarios.simulation.simulated_mesh import SimMesh
from services.api.meta import Document
from services.api.switches import SwitchError, Switches
from services.api.times import format_time
from services.runtime.config import MeshError

EPILOG = """\
\b
Examples:
  keplab fork                                        the running mesh from now on, for a minute
  keplab fork --at 1234 -e 'kill kubelet/node-0'     what if this had happened?
  keplab fork --at 1234 --set kubelet.on_reject=unbind   what if it had been decided in another way?
  keplab fork --at 1234 -e 'nodes node-0 numa=2x4 policy=single-numa-node'      what if this node had refused?
  keplab fork --at 1234 FILE                         a scenario that expects something of it
  keplab fork --at 1234 --save before.json.gz        keep the state; `keplab fork --from before.json.gz` begins there
  keplab fork --from unbind.keprec --at 300          a recorded run from there on
  keplab fork --from .keplab -o json                 also of a mesh that is down

\b
Versions are those of `keplab history` and of any list. Objects, versions and times are the mesh's. The fork makes up
nodes and their containers from the Nodes and from the statuses of their pods: containers run on with their start times
and restarts. No object says which exclusive CPUs, NUMA memory and devices of device plugins a pod has, so a fork does
not know them. A node that FILE declares is as FILE says. A fork changes nothing in the mesh.
"""


@click.command("fork", epilog=EPILOG)
@click.argument("file", required=False, type=SCENARIO)
@click.option("--at", type=click.IntRange(1), help="resource version to begin from; without it, the newest")
@click.option(
    "--from",
    "--recording",
    "--data",
    "source",
    type=click.Path(path_type=Path),
    default=Path(DATA_DIR_DEFAULT),
    show_default=True,
    help="directory of a mesh, up or down, a recording, or a file that --save wrote",
)
@click.option(
    "-e", "lines", multiple=True, metavar="LINE", help="line of a scenario, in place of FILE; may be repeated"
)
@click.option(
    "--for", "duration", default="60s", show_default=True, help="time that the simulation goes on after the last -e"
)
@click.option("--seed", type=int, default=0, show_default=True, help="seed of the simulation")
@click.option("--save", type=click.Path(path_type=Path), help="file to write the state to; nothing is run")
@set_option
@output_option
def fork(
    file: Path | None,
    at: int | None,
    source: Path,
    lines: tuple[str, ...],
    duration: str,
    seed: int,
    save: Path | None,
    assignments: tuple[str, ...],
    output: str,
) -> int:
    """Simulate from the state of a mesh.

    The simulation begins from the present state, or from the state at a resource version, and runs FILE. The exit code
    is 1 when an expectation or invariant failed.
    """
    overrides = Switches.parse(assignments).chosen_values
    if file is not None and lines:
        fail(f"{file} and -e {lines[0]!r}: want one of them")
    with refusing(StateError):
        state = state_of(source, at or 0)
    if save is not None:
        _save(save, state, output)
        return EXIT_OK
    with refusing(ScriptError, StateError):
        scenario = load_scenario(file) if file is not None else _scenario(lines, duration)
    ended: list[Document] = []

    def look(mesh: SimMesh) -> None:
        server: Any = mesh.instance("apiserver")
        if server is not None:
            ended.extend(_pods(server.server.store))

    with PodsView(scenario.name, quiet=output == "json") as view, refusing(ScriptError, SwitchError, StateError):
        try:
            result = simulate(
                scenario, seed=seed, overrides=overrides, progress=view.progress, afterwards=look, state=state
            )
        except MeshError as error:
            fail(f"the fork of version {state.rv} cannot start: {error}", EXIT_FAILED)
    changes = list(_changes(state.of(PODS), ended))
    if output == "json":
        print_json({**result.document(), "at": state.rv, "time": format_time(state.wall_s), "pods": changes})
    else:
        click.echo(f"from version {state.rv}, {format_time(state.wall_s)}: {count_text(len(state.objects), 'object')}")
        show_result(result, scenario.title)
        _show(changes, len(ended))
    return EXIT_USAGE if result.is_mistake else EXIT_OK if result.passed else EXIT_FAILED


def _save(path: Path, state: State, output: str) -> None:
    try:
        write_state(path, state)
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}")
    if output == "json":
        print_json({"file": str(path), "at": state.rv, "objects": len(state.objects)})
    else:
        click.echo(f"version {state.rv} with {count_text(len(state.objects), 'object')} is in {path}")


def _scenario(lines: tuple[str, ...], duration: str) -> Scenario:
    """Return the scenario of these lines, after which it goes on for so long. Raises: ScriptError."""
    try:
        parse_duration(duration)
    except ValueError as error:
        raise ScriptError(f"--for {error}") from None
    scenario = parse_scenario("\n".join((*lines, f"wait {duration}")), "fork", VERBS)
    for step in scenario.steps:
        try:
            check(scenario, step)
        except ValueError as error:
            raise ScriptError(f"-e {step.text!r}: {error}") from None
    return scenario


def _pods(store: Store) -> Iterable[Document]:
    return [msgspec.json.decode(record.body) for record in store.select(PODS, Selection()).records]


def _changes(before: Iterable[Document], after: Iterable[Document]) -> Iterable[dict[str, Any]]:
    """Yield the pods that are not as they were: gone, new, on another node, in another phase, restarted."""
    was, now = ({pod["metadata"]["uid"]: pod for pod in side} for side in (before, after))
    for uid, pod in {**was, **now}.items():
        old, new = (_pod_text(side.get(uid)) for side in (was, now))
        if old != new:
            metadata = pod["metadata"]
            yield {"namespace": metadata["namespace"], "name": metadata["name"], "uid": uid, "from": old, "to": new}


def _pod_text(pod: Document | None) -> str:
    if pod is None:
        return ""
    status = pod.get("status") or {}
    restarts = sum(each.get("restartCount", 0) for each in status.get("containerStatuses") or ())
    phase = "Terminating" if pod["metadata"].get("deletionTimestamp") else status.get("phase", "")
    where = f" on {node}" if (node := pod["spec"].get("nodeName", "")) else ""
    return f"{phase}{where}" + (f", {restarts} restarts" if restarts else "")


def _show(changes: list[dict[str, Any]], pods: int) -> None:
    if not changes:
        click.echo(f"  all is as it was: {count_text(pods, 'pod')}")
        return
    click.echo()
    rows = [(f"{each['namespace']}/{each['name']}", each["from"] or "-", each["to"] or "gone") for each in changes]
    print_table(("POD", "BEFORE", "AFTER"), rows)
