"""A comparison as text: a table for a terminal, markdown for a pull request, CSV for a notebook. Pure."""

import csv
import io
import re
import shlex
from collections.abc import Sequence
from typing import Final

from lab.experiments.document import Comparison, Measure
from lab.experiments.fates import FateGroup
from lab.experiments.figures import NOTHING, Scale, scale_of
from lab.experiments.statistics import Paired, Spread
from lab.experiments.wording import count_text
from lab.scenarios.measures.register import RELEVANT_SHARE

GROUPS_MAX: Final = 12
APART: Final = "where they part"


def scale_for(measure: Measure) -> Scale:
    """Return the scale for the values of a measure's row."""
    values = [v for each in measure.arms for v in (each.low, each.median, each.high)]
    return scale_of(measure.unit, [*values, *(d.median for d in measure.differences)])


def value_text(own: Spread, scale: Scale, runs: int) -> str:
    """Return a measure in one arm as text: its median, its quartiles if they differ, and the number of runs with
    a value if not all have one.
    """
    if own.median is None or own.q25 is None or own.q75 is None:
        return NOTHING
    text = scale.text(own.median) + _range(scale.number(own.q25), scale.number(own.q75))
    return text if own.seeds == runs else f"{text} ({own.seeds} of {runs})"


def difference_text(difference: Paired, scale: Scale) -> str:
    """Return a difference as text: its median with the interval, or with its range where there are too few seeds."""
    if difference.median is None or difference.low is None or difference.high is None:
        return NOTHING
    low, high = difference.interval or (difference.low, difference.high)
    return scale.text(difference.median, signed=True) + _range(
        scale.number(low, signed=True), scale.number(high, signed=True)
    )


def _range(low: str, high: str) -> str:
    return "" if low == high else f" [{low} … {high}]"


def seeds_text(comparison: Comparison, measure: Measure, paired: Paired) -> str:
    """Return the number of seeds in which the difference has its sign, in words; without a difference, the arm
    that has no value.
    """
    if not paired.seeds:
        pair = ((comparison.arms[0].name, measure.arms[0]), (paired.arm, _own(comparison, measure, paired)))
        return " and ".join(f"no value with {name}" for name, own in pair if not own.seeds) or "no common seed"
    way = ("equal", "higher", "lower")[paired.sign]
    return f"{way} in {paired.holds_in} of {paired.seeds}"


def _own(made: Comparison, measure: Measure, found: Paired) -> Spread:
    return measure.arms[[arm.name for arm in made.arms].index(found.arm)]


def judgement(made: Comparison, measure: Measure, found: Paired) -> str:
    """Return `better` or `worse` if the measure has a direction and the difference is clear; otherwise empty."""
    if not measure.better or not made.is_clear(measure, found):
        return ""
    return "better" if (found.sign > 0) == (measure.better == "higher") else "worse"


def folded_lines(comparison: Comparison, *, is_short: bool = False) -> list[str]:
    """Return sentences on what tables leave out: measures equal in all arms, and those without a value.

    `is_short`: measures that are 0 or have no value are not named.
    """
    others_of = [m for m in comparison.measures if not m.is_stated] if len(comparison.arms) > 1 else []
    equal, small = ([m for m in others_of if m.state == state] for state in ("equal", "small"))
    zero = [m for m in equal if m.arms[0].low == m.arms[0].high == 0]
    others = [f"{m.label} ({value_text(m.arms[0], scale_for(m), m.arms[0].seeds)})" for m in equal if m not in zero]
    empty = [m for m in comparison.measures if m.state == "empty"]
    lines = []
    if equal:
        texts = ["; ".join(others)] if others else []
        texts += [f"{len(zero)} are 0" if is_short else f"0: {'; '.join(m.label for m in zero)}"] if zero else []
        lines.append(
            f"{len(equal)} {'measure does' if len(equal) == 1 else 'measures do'} not differ: {'; '.join(texts)}."
        )
    if small:
        named = "" if is_short else f": {'; '.join(m.label for m in small)}"
        verb = "measure differs" if len(small) == 1 else "measures differ"
        lines.append(f"{len(small)} {verb} by less than {RELEVANT_SHARE:.0%}".replace("%", " %") + f"{named}.")
    if empty:
        named = "" if is_short else f": {'; '.join(m.label for m in empty)}"
        lines.append(f"{len(empty)} {'measure has' if len(empty) == 1 else 'measures have'} no value{named}.")
    return lines


def table(comparison: Comparison, measures: Sequence[Measure] | None = None) -> tuple[list[str], list[list[str]]]:
    """Return the heading and the rows of a table: the arms as columns, then a difference for each arm but the
    first.

    `measures`: None for those that the scenario states and those that differ.
    """
    heading = ["", *(arm.name for arm in comparison.arms)]
    for arm in comparison.arms[1:]:
        heading += [f"{arm.name} − {comparison.arms[0].name}", "seeds"]
    rows = []
    for measure in comparison.tabled_measures() if measures is None else measures:
        scale = scale_for(measure)
        row = [measure.label]
        for arm, own in zip(comparison.arms, measure.arms, strict=True):
            row.append(value_text(own, scale, len(arm.runs)))
        for difference in measure.differences:
            judged = judgement(comparison, measure, difference)
            row += [
                difference_text(difference, scale),
                seeds_text(comparison, measure, difference) + (f", {judged}" if judged else ""),
            ]
        rows.append(row)
    return heading, rows


def blocks(comparison: Comparison) -> list[str]:
    """Return the table for a narrow terminal: each measure, followed by a line for each arm."""
    lines = []
    width = max((len(arm.name) for arm in comparison.arms), default=0)
    for measure in comparison.tabled_measures():
        scale = scale_for(measure)
        lines.append(measure.label)
        for number, (arm, own) in enumerate(zip(comparison.arms, measure.arms, strict=True)):
            lines.append(f"  {arm.name.ljust(width)}  {value_text(own, scale, len(arm.runs))}")
            if number and (difference := measure.differences[number - 1]).seeds:
                judged = judgement(comparison, measure, difference)
                tail = f", {judged}" if judged else ""
                lines.append(
                    f"  {' ' * width}  {difference_text(difference, scale)}, "
                    f"{seeds_text(comparison, measure, difference)}{tail}"
                )
    return lines


def group_text(group: FateGroup) -> str:
    """Return one line on a group of pods with the same fates."""
    change = f"{group.arm_a} → {group.arm_b}"
    if group.arm_a == group.arm_b:
        change = f"{group.arm_a}, at another time"
    seeds = count_text(group.seeds, "seed")
    return f"{group.pods:,} × {change} ({group.arm}, {seeds}, e.g. {group.example})"


def pods_text(comparison: Comparison) -> str:
    """Return the number of pods with another fate, without a full stop; empty if there is one arm."""
    if len(comparison.arms) < 2:
        return ""
    if not comparison.difference_count:
        return "No pod's fate differs"
    pods = count_text(comparison.difference_count, "pod differs", "pods differ")
    return f"{pods}, matched by owner and order of creation"


def pods_lines(comparison: Comparison) -> list[str]:
    """Return the differing pods in groups, and the number of groups left out."""
    if not (text := pods_text(comparison)):
        return []
    lines = [f"{text}{':' if comparison.difference_count else '.'}"]
    lines += [group_text(group) for group in comparison.difference_groups[:GROUPS_MAX]]
    if (left := comparison.difference_groups[GROUPS_MAX:]) != []:
        groups, pods = count_text(len(left), "more group"), count_text(sum(group.pods for group in left), "pod")
        lines.append(f"in the JSON document: {groups} of {pods}")
    return lines


def problems(comparison: Comparison) -> list[str]:
    """Return what went wrong in runs, one line per problem."""
    return [
        f"{arm.name}, seed {run.seed}: {problem}"
        for arm in comparison.arms
        for run in arm.runs
        for problem in [run.error, *run.problems, *(f"{name}: {why}" for name, why in run.measure_errors.items())]
        if problem
    ]


def provenance_lines(comparison: Comparison) -> list[tuple[str, str]]:
    """Return the provenance of the figures, as names and texts."""
    p = comparison.provenance
    first, last = (comparison.seeds[0], comparison.seeds[-1]) if comparison.seeds else (0, 0)
    seeds = f"{first} to {last} ({len(comparison.seeds)})" if len(comparison.seeds) > 1 else str(first)
    revision = p.revision or f"none, version {p.version}"
    load = "" if p.load_1min is None else f", load {p.load_1min:.2f} at the start"
    shared = [f"{row.name}={row.values[0]}" for row in comparison.switches if not row.differs]
    apart = (
        [(APART, _diff_command(comparison))]
        if len(comparison.arms) == 2 and comparison.is_simulated and comparison.seeds
        else []
    )
    return [
        ("revision", f"{revision}{' with changes that are not committed' if p.is_dirty else ''} (keplab {p.version})"),
        ("scenario", f"{p.scenario_path}, SHA-256 {p.scenario_sha256[:16]}"),
        *((f"beside it, {name}", f"SHA-256 {digest[:16]}") for name, digest in p.inputs.items()),
        ("mode", "simulated, in virtual time" if comparison.is_simulated else comparison.mode_text),
        *([("mesh", p.mesh)] if p.mesh else []),
        ("seeds", seeds),
        *([("switches of all arms", ", ".join(shared))] if shared else []),
        ("machine", f"{p.cpus} CPUs, Python {p.python}, {p.platform}{load}"),
        ("run", f"{p.started}, {count_text(comparison.runs_made, 'run')} in {p.wall_s:.1f} s, {p.workers} at a time"),
        *([] if comparison.is_equal else apart),
    ]


def _diff_command(comparison: Comparison) -> str:
    """Return the command that shows the first decision that differs."""
    words = ["keplab", "diff", comparison.provenance.scenario_path]
    for arm in comparison.arms:
        words += ["--arm", f"{arm.name}:{','.join(arm.switches)}" if arm.switches else arm.name]
    for text_of_switch in comparison.provenance.set:
        words += ["--set", text_of_switch]
    return shlex.join([*words, *(["--seed", str(comparison.seeds[0])] if comparison.seeds[0] else [])])


def switch_rows(made: Comparison) -> list[list[str]]:
    """Return the switches in which arms differ: name, default, then the value in each arm."""
    return [[row.name, row.default or '""', *(v or '""' for v in row.values)] for row in made.switches if row.differs]


def text(comparison: Comparison, width: int | None = None) -> str:
    """Return the comparison for a terminal; `width`: its columns, None for a pipe."""
    heading, rows = table(comparison)
    aligned = _align_columns(heading, rows)
    is_wide = width is None or all(len(line) <= width for line in aligned)
    parts = [
        [comparison.result],
        (aligned if is_wide else blocks(comparison)) if rows else [],
        folded_lines(comparison, is_short=True),
        pods_lines(comparison),
    ]
    parts.append(problems(comparison)[:20])
    parts.append(
        [f"{name}: {what}" for name, what in provenance_lines(comparison)] + [f"again: {comparison.provenance.command}"]
    )
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _align_columns(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [list(heading), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "   ".join(
            cell.rjust(size) if place else cell.ljust(size)
            for place, (cell, size) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in lines
    ]


def markdown(comparison: Comparison) -> str:
    """Return the comparison as GitHub's markdown for a pull request; differences without a direction, and
    details, are folded.
    """
    differing = comparison.tabled_measures()
    unclear = [measure for measure in differing if not measure.is_stated and _is_unclear(comparison, measure)]
    if len(unclear) == len(differing):
        unclear = []
    title = comparison.title or comparison.scenario
    parts = [f"### {_md(title)}", f"**{_md(comparison.result)}**"]
    if differing:
        parts.append(_md_table(*table(comparison, [measure for measure in differing if measure not in unclear])))
    if len(comparison.seeds) > 1:
        parts.append(
            "Medians over seeds with [quartiles]; differences are taken seed by seed, their median with a 95 % "
            "bootstrap interval (with fewer than 6 seeds: lowest and highest)."
        )
    if unclear:
        parts.append(_details("Measures that differ without a clear direction", _md_table(*table(comparison, unclear))))
    details = folded_lines(comparison)
    if details:
        summary = (
            "Measures that are equal in all arms, or empty" if len(comparison.arms) > 1 else "Measures without a value"
        )
        parts.append(_details(summary, "\n".join(f"- {_md(line)}" for line in details)))
    if switches := switch_rows(comparison):
        names = ["switch", "default", *(arm.name for arm in comparison.arms)]
        parts.append(_details("Switches", _md_table(names, switches, align="---")))
    if (pods := pods_lines(comparison)) and comparison.difference_count:
        parts.append(_details("Pod by pod", "\n".join([_md(pods[0]), "", *(f"- {_names(line)}" for line in pods[1:])])))
    if wrong := problems(comparison):
        parts.append(_details("What went wrong", "\n".join(f"- {_names(line)}" for line in wrong[:50])))
    where = [f"- {name}: {_code(what) if name == APART else _md(what)}" for name, what in provenance_lines(comparison)]
    parts.append(_details("Where this comes from", "\n".join(where)))
    parts.append(f"```sh\n{comparison.provenance.command}\n```")
    p = comparison.provenance
    revision = f"keplab {p.revision[:12] or p.version}{' + changes' if p.is_dirty else ''}"
    parts.append(
        f"<sub>{_md(revision)} · {comparison.mode} · {len(comparison.seeds)} "
        f"{'seed' if len(comparison.seeds) == 1 else 'seeds'} an arm"
        f" · {_md(p.scenario_path)}, SHA-256 {p.scenario_sha256[:16]}</sub>"
    )
    return "\n\n".join(parts) + "\n"


def _is_unclear(made: Comparison, measure: Measure) -> bool:
    clear = [made.is_clear(measure, each) for each in measure.differences]
    return bool(clear) and not any(clear) and all(each.seeds for each in measure.differences)


def _details(summary: str, body: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"


def _md_table(heading: Sequence[str], rows: Sequence[Sequence[str]], align: str = "---:") -> str:
    lines = [f"| {' | '.join(_md(cell) for cell in heading)} |", f"|---|{f'{align}|' * (len(heading) - 1)}"]
    lines += [f"| {' | '.join(_md(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines)


def _md(text: str) -> str:
    """Return text that markdown shows as it is: names come from a cluster, and a pipe ends a cell."""
    for sign, instead in (
        ("&", "&amp;"),
        ("<", "&lt;"),
        (">", "&gt;"),
        ("|", "\\|"),
        ("*", "\\*"),
        ("_", "\\_"),
        ("`", "\\`"),
    ):
        text = text.replace(sign, instead)
    return " ".join(text.split())


def _code(text: str) -> str:
    return f"<code>{_md(text)}</code>"


def _names(text: str) -> str:
    """Return text as `_md`; what would be a link to an issue, as the pod `job/small#1` would, is code."""
    return re.sub(r"[^\s(]+#\d+", lambda found: f"<code>{found[0]}</code>", _md(text))


def csv_rows(comparison: Comparison) -> str:
    """Return one CSV line for each arm, seed and measure; the value is empty where a run has none."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["scenario", "mode", "arm", "seed", "measure", "unit", "value"])
    units = {measure.name: measure.unit for measure in comparison.measures}
    for arm in comparison.arms:
        for run in arm.runs:
            for name, value in run.measures.items():
                shown = "" if value is None or run.error else f"{value:.12g}"
                writer.writerow(
                    [comparison.scenario, comparison.mode, arm.name, run.seed, name, units.get(name, ""), shown]
                )
    return out.getvalue()
