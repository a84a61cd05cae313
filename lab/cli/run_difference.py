"""Output of `keplab diff` for two runs: their origins, the first decision that differs, and all others."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from lab.cli.output import EXIT_OK, print_json, print_table
from lab.experiments.wording import count_text
from lab.scenarios.decisions.decision import Decision
from lab.scenarios.decisions.difference import Compared, Difference, about, compare, in_order

BEFORE, AFTER = 2, 4
"""Numbers of decisions about the role that are shown: before the first that differs, and from it on."""
PODS_NAMED = 3
MESSAGE_MAX = 160


class Side(NamedTuple):
    """One of two runs: its label, its origin, and its decisions, in seconds since it began."""

    label: str
    origin: dict[str, Any]
    decisions: list[Decision]


def show(first: Side, second: Side, *, with_times: bool, limit: int, output: str) -> int:
    """Print how the second run decided differently."""
    comparison = compare(first.decisions, second.decisions, with_times=with_times)
    if output == "json":
        print_json(_document(first, second, comparison))
        return EXIT_OK
    for side in (first, second):
        click.echo(_headline(side))
    if first.origin["scenario"] != second.origin["scenario"]:
        names = f"{first.origin['scenario']} and {second.origin['scenario']}"
        click.secho(f"The runs are of two scenarios, {names}: roles are matched by name alone.", fg="yellow")
    for side in (first, second):
        if (until_s := side.origin.get("until_s")) is not None:
            text = f"{side.label} has no end: it was recorded up to {until_s:.3f} s, and what came later is unknown."
            click.secho(text, fg="yellow")
    click.echo()
    if comparison.differences:
        _show_first(first, second, comparison)
        _show_all(first, second, comparison, limit)
    else:
        click.echo(f"no difference in {count_text(comparison.counts[0], 'decision')}")
    if comparison.reordered is not None:
        one, other = comparison.reordered.first, comparison.reordered.second
        click.echo(
            f"The order of attempts differs: {first.label} tries {one.role} at {_at(one)} where {second.label} tries "
            f"{other.role} at {_at(other)}."
        )
    return EXIT_OK


def _document(first: Side, second: Side, comparison: Compared) -> dict[str, Any]:
    def both(difference: Difference) -> dict[str, Any]:
        return {"role": difference.role, "at_s": difference.at_s, "a": difference.first, "b": difference.second}

    return {
        "a": first.origin | {"decisions": comparison.counts[0]},
        "b": second.origin | {"decisions": comparison.counts[1]},
        "same": comparison.same,
        "last_same": comparison.last_same,
        "first": both(comparison.differences[0]) if comparison.differences else None,
        "difference_count": len(comparison.differences),
        "differences": [both(each) for each in comparison.differences],
        "reordered": {"a": comparison.reordered.first, "b": comparison.reordered.second}
        if comparison.reordered
        else None,
    }


def _headline(side: Side) -> str:
    origin = side.origin
    switches = " ".join(origin["switches"]) or "no switch set"
    parts = [f"{origin['scenario']}, seed {origin['seed']}", switches]
    if origin.get("revision"):
        parts.append(f"revision {origin['revision'][:8]}{'*' if origin['dirty'] else ''}")
    elif origin.get("version"):
        parts.append(f"keplab {origin['version']}")
    parts.append(f"{count_text(len(side.decisions), 'decision')}")
    if origin["passed"] is not None:  # a mesh passes nothing
        parts.append("passed" if origin["passed"] else "failed")
    return f"{side.label}: {', '.join(parts)}"


def _at(decision: Decision) -> str:
    return f"{decision.at_s:.3f} s"


def _text(decision: Decision | None) -> str:
    if decision is None:
        return "–"
    return f"{decision.event} {decision.outcome}" + (f" on {decision.node}" if decision.node else "")


def _show_first(first: Side, second: Side, comparison: Compared) -> None:
    """Print what was decided about the role until the two parted, and what each decided then, with its reasons."""
    head = comparison.differences[0]
    sides = about(head.role, first.decisions, second.decisions)
    begin = next((i for i, each in enumerate(sides) if each.first is head.first and each.second is head.second), 0)
    names = dict.fromkeys(side.name for side in (head.first, head.second) if side is not None)
    click.secho(f"First difference: {head.role} ({', '.join(names)}) at {head.at_s:.3f} s", bold=True)
    rows = []
    for pair in sides[max(0, begin - BEFORE) : begin + AFTER]:
        other = "the same" if pair.is_same else _text(pair.second)
        rows.append((f"{pair.at_s:.3f} s", _text(pair.first), other))
    print_table(("TIME", first.label, second.label), rows)
    reasons = [(first.label, head.first), (second.label, head.second)]
    if not any(side is not None and side.why.get("message") for side in (head.first, head.second)):
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


def _show_all(first: Side, second: Side, comparison: Compared, limit: int) -> None:
    """Print all differences, role by role; roles that differ in the same way are one row."""
    by_role: dict[str, list[Difference]] = {}
    for pair in comparison.differences:
        by_role.setdefault(pair.role, []).append(pair)
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for role, differences in by_role.items():
        # Sorted, because who of two actors is first is no difference.
        decided = sorted((_text(each.first), _text(each.second)) for each in differences)
        groups.setdefault(tuple(decided), []).append(role)
    count = count_text(len(comparison.differences), "decision differs", "decisions differ")
    about_roles = count_text(len(by_role), "role", "roles")
    same = count_text(comparison.same, "is the same", "are the same")
    click.secho(f"{count}, about {about_roles}; {same}:", bold=True)
    rows: list[tuple[str, ...]] = []
    hidden = 0
    for number, roles in enumerate(groups.values()):
        if limit and number >= limit:
            hidden += len(roles)
            continue
        for i, difference in enumerate(by_role[roles[0]]):
            role = _roles_text(roles) if i == 0 else ""
            rows.append((role, f"{difference.at_s:.3f} s", _text(difference.first), _text(difference.second)))
    print_table(("ROLE", "TIME", first.label, second.label), rows)
    if hidden:
        click.echo(f"{count_text(hidden, 'more role differs', 'more roles differ')}; --limit 0 shows all")


def _roles_text(roles: Sequence[str]) -> str:
    ordered = sorted(roles, key=in_order)
    if len(ordered) <= PODS_NAMED:
        return ", ".join(ordered)
    return f"{ordered[0]}, … {ordered[-1]} ({len(ordered):,})"
