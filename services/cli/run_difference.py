"""What `keplab diff` says of two runs: where they are from, the first decision that differs, and all others."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click
import msgspec

from services.api.switches import SwitchError, Switches
from services.cli.live import PodsView, console
from services.cli.output import EXIT_OK, fail, print_json, print_table, refusing
from services.experiments.compare import parse_arms
from services.runs.again import Decided, NotAgain, Wanted, make_again
from services.runs.folder import RunsFolder, Unreadable
from services.runs.record import RunRecord, UnknownRun
from services.scenarios.decisions.decision import Decision
from services.scenarios.decisions.difference import Compared, Difference, about, compare, in_order
from services.scenarios.run import load_scenario, simulate
from services.scenarios.script.scenario import ScriptError

BEFORE, AFTER = 2, 4
"""So many decisions about the role are shown before the first that differs, and from there on."""
PODS_NAMED = 3
MESSAGE_MAX = 160


class Side(NamedTuple):
    """One of two runs: what it is called, where it is from, and what was decided, in seconds since it began."""

    label: str
    origin: dict[str, Any]
    decisions: list[Decision]


def of_arms(
    targets: Sequence[str], arms: Sequence[str], seed: int, assignments: Sequence[str], *, quiet: bool
) -> tuple[Side, Side]:
    """Simulate the file in both arms."""
    if len(arms) != 2 or len(targets) != 1:
        fail(f"want one FILE and two --arm, not {len(targets)} and {len(arms)}")
    shared = Switches.parse(assignments).chosen
    sides = []
    with refusing(ScriptError, SwitchError):
        scenario = load_scenario(Path(targets[0]))
        for arm in parse_arms(tuple(arms)):
            found, overrides = Decided(), {**shared, **arm.switches}
            with PodsView(
                f"{scenario.name} · {arm.name} · seed {seed}", quiet=quiet or not console.is_terminal
            ) as view:
                result = simulate(
                    scenario,
                    seed=seed,
                    overrides=overrides,
                    on_line=found.take,
                    beforehand=found.look_into,
                    progress=view.progress,
                )
            origin = {
                "run": "",
                "scenario": scenario.name,
                "arm": arm.name,
                "seed": seed,
                "switches": list(result.switches),
                "digest": result.digest,
                "passed": result.passed,
            }
            sides.append(Side(arm.name, origin, _since(found.decisions, result.started_s)))
    return sides[0], sides[1]


def of_runs(targets: Sequence[str], runs: str, *, quiet: bool) -> tuple[Side, Side]:
    """Return the runs that are named."""
    if len(targets) > 2:
        fail(f"two runs are compared, and {len(targets)} are named: {' '.join(targets)}")
    folder = RunsFolder(Path(runs))
    with refusing(UnknownRun, Unreadable, NotAgain):
        if len(targets) == 1:
            record, arm, _ = folder.named(targets[0])
            if record.kind != "comparison" or arm:
                fail(f"{targets[0]}: want two runs, or a comparison, whose first two arms are compared")
            if len(record.arms) < 2:
                fail(f"{targets[0]}: the comparison has one arm, {', '.join(record.arms)}")
            targets = [f"{record.id}/{name}/{record.seeds[0]}" for name in list(record.arms)[:2]]
        first, second = (_side(folder, target, quiet=quiet) for target in targets)
    if first.label == second.label:
        first, second = first._replace(label=targets[0]), second._replace(label=targets[1])
    return first, second


def _side(folder: RunsFolder, target: str, *, quiet: bool) -> Side:
    """Return one run. Raises: UnknownRun, Unreadable, NotAgain."""
    record, arm, seed = folder.named(target)
    origin = {
        "run": record.id,
        "scenario": record.scenario,
        "arm": arm,
        "seed": record.seed if seed is None else seed,
        "switches": record.result.get("switches", []),
        "revision": record.origin.revision,
        "dirty": record.origin.is_dirty,
        "version": record.origin.version,
        "digest": record.digest,
        "passed": record.passed,
    }
    match record.kind:
        case "run":
            return Side(record.id, origin, _since(folder.decisions(record.id), record.started_s))
        case "sweep":
            again = f"keplab run {record.origin.path} --seed {record.seed}"
            raise UnknownRun(f"run {record.id} is a sweep, whose decisions are not kept; make one of its runs: {again}")
    if not arm:
        _is_comparison(record)
    wanted, passed = wanted_of(folder, record, arm, int(origin["seed"]))
    found = Decided()
    with PodsView(f"{target} again", quiet=quiet or not console.is_terminal) as view:
        result = make_again(wanted, found.take, progress=view.progress, beforehand=found.look_into)
    origin |= {"digest": wanted.digest, "switches": list(result.switches), "passed": passed}
    return Side(f"{record.id}/{arm}/{seed}", origin, _since(found.decisions, result.started_s))


def wanted_of(folder: RunsFolder, record: RunRecord, arm: str, seed: int) -> tuple[Wanted, bool]:
    """Return what one run of a comparison was, and whether it passed. Raises: NotAgain, Unreadable."""
    name = f"{record.id}/{arm}/{seed}"
    if not record.is_repeatable:
        raise NotAgain(f"run {name} was made by processes, and comparisons keep no event logs: it cannot be made again")
    arms = {each["name"]: each["runs"] for each in folder.comparison(record.id)["arms"]}
    made = next((run for run in arms.get(arm, ()) if run["seed"] == seed), None)
    if made is None:
        raise UnknownRun(f"run {record.id} was interrupted before arm {arm}, seed {seed}")
    wanted = Wanted(name, record.origin, seed, [*record.assignments, *record.arms[arm]], made["digest"])
    return wanted, bool(made["passed"])


def _is_comparison(record: RunRecord) -> NoReturn:
    one = f"{record.id}/{next(iter(record.arms), 'ARM')}/{record.seeds[0] if record.seeds else 0}"
    raise UnknownRun(f"run {record.id} is a comparison; name one of its runs, such as {one}")


def _since(decisions: list[Decision], started_s: float) -> list[Decision]:
    """Return decisions in seconds since the run began."""
    return [msgspec.structs.replace(each, at_s=round(each.at_s - started_s, 9)) for each in decisions]


def show(first: Side, second: Side, *, with_times: bool, limit: int, output: str) -> int:
    """Print how the second run decided differently."""
    found = compare(first.decisions, second.decisions, with_times=with_times)
    if output == "json":
        print_json(_document(first, second, found))
        return EXIT_OK
    for side in (first, second):
        click.echo(_headline(side))
    if first.origin["scenario"] != second.origin["scenario"]:
        names = f"{first.origin['scenario']} and {second.origin['scenario']}"
        click.secho(f"The runs are of two scenarios, {names}: roles are matched by name alone.", fg="yellow")
    click.echo()
    if found.differences:
        _show_first(first, second, found)
        _show_all(first, second, found, limit)
    else:
        click.echo(f"no difference in {found.counts[0]} decisions")
    if found.reordered is not None:
        one, other = found.reordered.first, found.reordered.second
        click.echo(
            f"The order of attempts differs: {first.label} tries {one.role} at {_at(one)} where {second.label} tries "
            f"{other.role} at {_at(other)}."
        )
    return EXIT_OK


def _document(first: Side, second: Side, found: Compared) -> dict[str, Any]:
    def both(difference: Difference) -> dict[str, Any]:
        return {"role": difference.role, "at_s": difference.at_s, "a": difference.first, "b": difference.second}

    return {
        "a": first.origin | {"decisions": found.counts[0]},
        "b": second.origin | {"decisions": found.counts[1]},
        "same": found.same,
        "last_same": found.last_same,
        "first": both(found.differences[0]) if found.differences else None,
        "difference_count": len(found.differences),
        "differences": [both(each) for each in found.differences],
        "reordered": {"a": found.reordered.first, "b": found.reordered.second} if found.reordered else None,
    }


def _headline(side: Side) -> str:
    origin = side.origin
    switches = " ".join(origin["switches"]) or "no switch set"
    code = (origin.get("revision") or "")[:8] + ("*" if origin.get("dirty") else "") or origin.get("version") or ""
    parts = [f"{origin['scenario']}, seed {origin['seed']}", switches]
    if code:
        parts.append(f"revision {code}" if origin.get("revision") else f"keplab {code}")
    parts += [f"{len(side.decisions):,} decisions", "passed" if origin["passed"] else "failed"]
    return f"{side.label}: {', '.join(parts)}"


def _at(decision: Decision) -> str:
    return f"{decision.at_s:.3f} s"


def _text(decision: Decision | None) -> str:
    if decision is None:
        return "–"
    return f"{decision.event} {decision.outcome}" + (f" on {decision.node}" if decision.node else "")


def _show_first(first: Side, second: Side, found: Compared) -> None:
    """Print what was decided about the role until the two parted, and what each decided then, with its reasons."""
    head = found.differences[0]
    sides = about(head.role, first.decisions, second.decisions)
    begin = next((i for i, each in enumerate(sides) if each.first is head.first and each.second is head.second), 0)
    names = dict.fromkeys(side.name for side in (head.first, head.second) if side is not None)
    click.secho(f"First difference: {head.role} ({', '.join(names)}) at {head.at_s:.3f} s", bold=True)
    rows = []
    for each in sides[max(0, begin - BEFORE) : begin + AFTER]:
        other = "the same" if each.is_same else _text(each.second)
        rows.append((f"{each.at_s:.3f} s", _text(each.first), other))
    print_table(("TIME", first.label, second.label), rows)
    reasons = [(first.label, head.first), (second.label, head.second)]
    if head.first is None or head.second is None:
        latest = next((each for each in reversed(sides[:begin]) if each.is_same), None)
        reasons.append(("both", latest.first if latest is not None else None))
    for label, decision in reasons:
        if decision is not None and (why := str(decision.why.get("message", ""))):
            click.echo(f"{label}, {decision.event}: {why[:MESSAGE_MAX]}{'…' if len(why) > MESSAGE_MAX else ''}")
    _show_scores(reasons)
    click.echo()


def _show_scores(reasons: Sequence[tuple[str, Decision | None]]) -> None:
    """Print the scores behind the nodes that were chosen: of the plugins that tell nodes or runs apart."""
    scored = [(label, decision) for label, decision in reasons if decision is not None and "scores" in decision.why]
    if not scored:
        return
    plugins = sorted({plugin for _, decision in scored for plugin in decision.why["scores"]})
    values = {plugin: [_of(decision, plugin) for _, decision in scored] for plugin in plugins}
    shown = [
        plugin
        for plugin in plugins
        if any(len(set(each.values())) > 1 for each in values[plugin])
        or any(a != values[plugin][0] for a in values[plugin])
    ]
    rows = []
    for label, decision in scored:
        for node, total in decision.why["total"].items():
            mark = " (chosen)" if node == decision.node else ""
            rows.append((label, node + mark, *(_of(decision, plugin).get(node, "–") for plugin in shown), total))
    weights = {plugin: weight for _, decision in scored for plugin, weight in decision.why["weights"].items()}
    click.echo("Scores, 0 to 100, of the plugins that make a difference:")
    print_table(("", "NODE", *(f"{plugin} ×{weights.get(plugin, 1)}" for plugin in shown), "SUM"), rows, texts=2)


def _of(decision: Decision, plugin: str) -> dict[str, int]:
    found: dict[str, int] = decision.why["scores"].get(plugin, {})
    return found


def _show_all(first: Side, second: Side, found: Compared, limit: int) -> None:
    """Print all differences, role by role; roles that differ in the same way are one row."""
    by_role: dict[str, list[Difference]] = {}
    for each in found.differences:
        by_role.setdefault(each.role, []).append(each)
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for role, differences in by_role.items():
        # Sorted, because who of two actors is first is no difference.
        decided = sorted((_text(each.first), _text(each.second)) for each in differences)
        groups.setdefault(tuple(decided), []).append(role)
    count = _counted(len(found.differences), "decision differs", "decisions differ")
    about_roles = _counted(len(by_role), "role", "roles")
    same = _counted(found.same, "is the same", "are the same")
    click.secho(f"{count}, about {about_roles}; {same}:", bold=True)
    rows: list[tuple[str, ...]] = []
    hidden = 0
    for number, roles in enumerate(groups.values()):
        if limit and number >= limit:
            hidden += len(roles)
            continue
        for i, difference in enumerate(by_role[roles[0]]):
            role = _named(roles) if i == 0 else ""
            rows.append((role, f"{difference.at_s:.3f} s", _text(difference.first), _text(difference.second)))
    print_table(("ROLE", "TIME", first.label, second.label), rows)
    if hidden:
        click.echo(f"{hidden:,} more roles differ; --limit 0 shows all")


def _counted(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _named(roles: Sequence[str]) -> str:
    ordered = sorted(roles, key=in_order)
    if len(ordered) <= PODS_NAMED:
        return ", ".join(ordered)
    return f"{ordered[0]}, … {ordered[-1]} ({len(ordered):,})"
