"""`keplab diff`: show what changed in a mesh between two versions, or where two runs decided differently."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from apiserver_fake.registry.differences import Difference, differences
from lab.cli.live import PodsView, console, progress_bar
from lab.cli.mesh_api import Objects
from lab.cli.output import EXIT_FAILED, EXIT_OK, arms_set_option, fail, output_option, print_json, refusing
from lab.cli.run_options import runs_folder_option
from lab.cli.sources import kind_named, objects_of, open_recording, source_options
from lab.experiments.wording import count_text
from lab.recordings.format import META, SUFFIX
from lab.runs.folder import RunsFolder, Unreadable
from lab.runs.record import UnknownRun, is_version
from lab.scenarios.script.scenario import ScriptError
from services.api.errors import ApiError
from services.api.switches import SwitchError, Switches
from services.client.discovery import ServedKind

if TYPE_CHECKING:
    from lab.cli.run_difference import Side

NOISE = ("leases.coordination.k8s.io", "events")
"""Kinds that change all the time; compared only when they are named, or with --all."""
VALUE_MAX = 80
EPILOG = """\
\b
Examples:
  keplab diff 1200 1234                       every object that differs, field by field
  keplab diff 1200 1234 pods nodes
  keplab diff 1200 1234 -o json | jq '.objects[].name'
  keplab diff latest~1 latest                 where two runs decided differently
  keplab diff fail-0.keprec unbind-0.keprec     where two recorded runs decided differently
  keplab diff 300 420 pods --recording fail-0.keprec
  keplab diff experiments/runaway/runaway.txt \\
    --arm fail:kubelet.on_reject=fail --arm unbind:kubelet.on_reject=unbind

\b
`keplab history KIND/NAME` lists versions; the resourceVersion of any list is one, too. Values of Secrets are not shown.
`keplab runs` lists runs. ID of a comparison compares its first two arms with its first seed; ID/ARM/SEED is one run of
it.
"""


@click.command("diff", epilog=EPILOG)
@click.argument("targets", metavar="A B [KIND]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help=f"for versions: also compare {' and '.join(NOISE)}")
@click.option(
    "--arm", "arms", multiple=True, metavar="NAME:SWITCH=VALUE[,…]", help="simulate FILE in this arm; given twice"
)
@click.option("--seed", type=int, default=0, show_default=True, help="seed of both arms")
@arms_set_option
@click.option(
    "--when", "with_times", is_flag=True, help="for runs: the same decision at another time is a difference, too"
)
@click.option(
    "--limit", type=click.IntRange(0), default=20, show_default=True, help="limit on the rows of differences; 0: all"
)
@runs_folder_option
@source_options
@output_option
def diff(
    targets: tuple[str, ...],
    everything: bool,
    arms: tuple[str, ...],
    seed: int,
    assignments: tuple[str, ...],
    with_times: bool,
    limit: int,
    runs: str,
    data: Path,
    recording: Path | None,
    output: str,
) -> int:
    """Compare two versions of the mesh, or two runs.

    For two resource versions the command lists the objects that were created, deleted and changed, with the fields. For
    two runs it shows the first decision of a scheduler, kubelet or controller that differs, and then all of them, by
    role: pods are matched by owner and order of creation. The time of a decision is no difference, unless --when is
    given. Two recordings are two runs; --recording compares versions of one recording.
    """
    versions = [is_version(target) for target in targets[:2]]
    if versions == [True, True] and not arms:
        return _versions(objects_of(data, recording), targets, everything, output)
    if len(versions) == 2 and any(versions) and not arms:
        version, other = sorted(targets[:2], key=lambda target: not is_version(target))
        fail(f"{version} is a resource version and {other!r} is not; want two versions, or two runs")
    if not targets or any(versions):
        raise click.UsageError("want two resource versions, two runs, or FILE with two --arm")
    from lab.cli.run_difference import show

    quiet = output == "json" or not console.is_terminal
    if not arms and any(_is_recording(target) for target in targets[:2]):
        return show(*_of_recordings(targets), with_times=with_times, limit=limit, output=output)
    sides = _of_arms(targets, arms, seed, assignments, quiet) if arms else _of_runs(targets, runs, quiet)
    return show(*sides, with_times=with_times, limit=limit, output=output)


def _of_arms(
    targets: tuple[str, ...], arms: tuple[str, ...], seed: int, assignments: tuple[str, ...], quiet: bool
) -> "tuple[Side, Side]":
    """Simulate the file in both arms."""
    from lab.cli.run_difference import Side
    from lab.experiments.arms import parse_arms
    from lab.runs.repeat import simulate_decisions
    from lab.scenarios.loading import load_scenario

    if len(arms) != 2 or len(targets) != 1:
        fail(f"want one FILE and two --arm, not {len(targets)} and {len(arms)}")
    shared = Switches.parse(assignments).chosen_values
    sides = []
    with refusing(ScriptError, SwitchError):
        scenario = load_scenario(Path(targets[0]))
        for arm in parse_arms(arms):
            with PodsView(f"{scenario.name} · {arm.name} · seed {seed}", quiet=quiet) as view:
                run = simulate_decisions(scenario, seed, {**shared, **arm.switches}, view.progress)
            origin = {
                "run": "",
                "scenario": scenario.name,
                "arm": arm.name,
                "seed": seed,
                "switches": list(run.result.switches),
                "digest": run.result.digest,
                "passed": run.result.passed,
            }
            sides.append(Side(arm.name, origin, run.decisions))
    return sides[0], sides[1]


def _is_recording(target: str) -> bool:
    return target.endswith(SUFFIX) or Path(target).is_file() or (Path(target) / META).is_file()


def _of_recordings(targets: tuple[str, ...]) -> "tuple[Side, Side]":
    """Return the two recordings that are named."""
    if len(targets) != 2:
        fail(f"want two recordings, not {len(targets)}: {' '.join(targets)}")
    first, second = (_recording_side(Path(target)) for target in targets)
    if first.label == second.label:
        first, second = first._replace(label=targets[0]), second._replace(label=targets[1])
    return first, second


def _recording_side(path: Path) -> "Side":
    from lab.cli.run_difference import Side
    from lab.scenarios.recording_summary import decisions_of

    with open_recording(path) as recording:
        meta, decisions = recording.meta, decisions_of(recording)
        until_s = None if recording.is_complete else recording.time_range[1]
    origin = {
        "run": "",
        "recording": str(path),
        "scenario": meta.scenario or meta.title,
        "arm": meta.arm,
        "seed": meta.seed,
        "switches": meta.switches,
        "version": meta.versions.get("keplab", ""),
        "digest": meta.digest,
        "passed": meta.passed,
        "until_s": until_s,
    }
    return Side(meta.arm or path.stem, origin, decisions)


def _of_runs(targets: tuple[str, ...], runs: str, quiet: bool) -> "tuple[Side, Side]":
    """Return the runs that are named; of a comparison its first two arms, with its first seed."""
    if len(targets) > 2:
        fail(f"want two runs, not {len(targets)}: {' '.join(targets)}")
    folder, names = RunsFolder(Path(runs)), targets
    with refusing(UnknownRun, Unreadable):
        if len(targets) == 1:
            record, arm, _ = folder.find_by_name(targets[0])
            if record.kind != "comparison" or arm or len(record.arms) < 2:
                fail(f"{targets[0]}: want two runs, or a comparison, whose first two arms are compared")
            names = tuple(f"{record.id}/{name}/{record.seeds[0]}" for name in list(record.arms)[:2])
        first, second = (_side(folder, name, quiet) for name in names)
    if first.label == second.label:
        first, second = first._replace(label=names[0]), second._replace(label=names[1])
    return first, second


def _side(folder: RunsFolder, name: str, quiet: bool) -> "Side":
    """Return one run: as it is kept, or made again. Raises: UnknownRun, Unreadable."""
    from lab.cli.run_difference import Side
    from lab.runs.repeat import NotAgain, decided_again, since, wanted_of

    record, arm, seed = folder.find_by_name(name)
    origin = {
        "run": record.id,
        "scenario": record.scenario,
        "arm": arm,
        "seed": record.seed if seed is None else seed,
        "switches": record.result.get("switches", []),
        "revision": record.origin.revision,
        "dirty": bool(record.origin.changes),
        "version": record.origin.version,
        "digest": record.digest,
        "passed": record.passed,
    }
    if record.kind == "run":
        return Side(record.id, origin, since(folder.decisions(record.id), record.started_s))
    with refusing(NotAgain):
        wanted = wanted_of(folder, record, arm, seed)
        with PodsView(f"{wanted.name} again", quiet=quiet) as view:
            run = decided_again(wanted, view.progress)
    switches = list(run.result.switches)
    origin |= {"digest": wanted.digest, "switches": switches, "passed": wanted.passed}
    return Side(wanted.name, origin, run.decisions)


def _versions(api: Objects, targets: tuple[str, ...], everything: bool, output: str) -> int:
    before, after, *names = targets
    with refusing(ApiError, code=EXIT_FAILED):
        kinds = [kind_named(api, name) for name in names] or [
            kind for kind in api.kinds() if kind.has_past and (everything or kind.title not in NOISE)
        ]
    changed_objects: list[dict[str, Any]] = []
    with progress_bar("comparing", quiet=output == "json", is_transient=True) as bar:
        task = bar.add_task("", total=len(kinds))
        for kind in kinds:
            try:
                changed_objects += _compare_kind(api, kind, before, after)
            except ApiError as error:
                fail(f"{kind.title}: {error}", EXIT_FAILED)
            bar.advance(task)
    if output == "json":
        print_json({"from": before, "to": after, "objects": changed_objects})
        return EXIT_OK
    for document in changed_objects:
        _show(document)
    left_out = "" if names or everything else f" ({' and '.join(NOISE)} are not compared: --all)"
    what = count_text(len(changed_objects), "object differs", "objects differ")
    click.echo(f"{what} between versions {before} and {after}{left_out}")
    return EXIT_OK


def _compare_kind(api: Objects, kind: ServedKind, before: str, after: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a kind that differ."""
    sides = [{_key(item): item for item in api.items(kind, at)} for at in (before, after)]
    for key in sorted(sides[0].keys() | sides[1].keys()):
        was, now = (side.get(key) for side in sides)
        changed = differences(was, now)
        if not changed:
            continue
        is_again = was and now and was["metadata"]["uid"] != now["metadata"]["uid"]
        yield {
            "resource": kind.title,
            "namespace": key[0],
            "name": key[1],
            "change": "ADDED" if was is None else "DELETED" if now is None else "REPLACED" if is_again else "MODIFIED",
            "fields": [_redact_secret(each) for each in changed] if kind.title == "secrets" else changed,
        }


def _key(item: dict[str, Any]) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _redact_secret(difference: Difference) -> Difference:
    """Return what may be shown of a Secret's field."""
    if not difference.path.startswith(("data", "stringData")):
        return difference
    sides = ("(hidden)" if each is not None else None for each in (difference.before, difference.after))
    return Difference(difference.path, *sides)


def _show(found: dict[str, Any]) -> None:
    colour = {"ADDED": "green", "DELETED": "red"}.get(found["change"], "yellow")
    where = "/".join(part for part in (found["namespace"], found["name"]) if part)
    click.secho(f"{found['change']:<9} {found['resource']} {where}", fg=colour)
    if found["change"] in ("MODIFIED", "REPLACED"):
        for each in found["fields"]:
            click.echo(f"    {each.path}: {_text(each.before)} → {_text(each.after)}")


def _text(value: object) -> str:
    if value is None:
        return "-"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= VALUE_MAX else f"{text[: VALUE_MAX - 1]}…"
