"""One self-contained HTML page about a comparison. Opens without a network, prints on paper.

Pure: a document in, text out. There is no script. Everything that came from a cluster is escaped.
"""

from collections.abc import Sequence
from html import escape
from typing import Final

from services.experiments.document import Comparison, Measure
from services.experiments.headline import ranked
from services.experiments.plots import Frame, strip, svg
from services.experiments.style import head
from services.experiments.views import (
    GROUPS_MAX,
    difference_text,
    folded,
    judgement,
    problems,
    provenance_lines,
    scale_for,
    seeds_text,
    switch_rows,
    value_text,
)

SEEDS_MAX: Final = 200
MEASURES_MAX: Final = 6
PROBLEMS_MAX: Final = 40
_STYLE: Final = """
.result { font-size: 1.15rem; max-width: 62rem; border-left: 4px solid var(--running); padding: .1rem 0 .1rem 1rem; }
.note, .where { color: var(--soft); font-size: .9rem; max-width: 62rem; } .where dt { float: left; clear: left;
  width: 11rem; } .where dd { margin: 0 0 .15rem 11.5rem; overflow-wrap: anywhere; }
.range, .seeds { color: var(--soft); white-space: nowrap; } .seeds { text-align: left; }
.cards svg { max-width: none; } .seed { fill: var(--soft); opacity: .5; }
.median { stroke: var(--ink); stroke-width: 2; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: .9rem; } summary { cursor: pointer; }
summary:focus-visible { outline: 2px solid var(--running); }
@media (min-width: 641px) { .figures td:first-child { min-width: 11rem; } .figures td { padding-right: .7rem; } }
@media (max-width: 640px) { body { margin: 1rem auto; } .cards tr { display: block; padding: .5rem 0; border-bottom: 1px
  solid var(--line); } .cards tr:first-child { display: none; } .cards td { display: flex;
  justify-content: space-between; gap: 1rem; border: 0; padding: .1rem 0; } .cards td:first-child { font-weight: 600; }
  .cards td[data-of]::before { content: attr(data-of); color: var(--soft); } .where dt { float: none; width: auto; }
  .where dd { margin-left: 0; } .cards td.none { display: none; } }
@media print { @page { margin: 12mm; } body { font-size: 9.5pt; margin: 0; max-width: none; padding: 0; }
  .plots { display: grid; grid-template-columns: 1fr 1fr; gap: .5rem; } h1 { font-size: 14pt; } h2 { font-size: 11pt;
  margin: .8rem 0 .25rem; } th, td { padding: .12rem .6rem .12rem 0; } tr, dl { break-inside: avoid; }
  details:not([open]) { display: none; } .scroll { overflow: visible; } }
"""


def page(made: Comparison) -> str:
    """Return the whole page."""
    seeds = "1 seed" if len(made.seeds) == 1 else f"{len(made.seeds)} seeds"
    mode = made.mode_text.removesuffix(" over gRPC")
    parts = [
        head(made.title or made.scenario, "", _STYLE),
        f"<p class=result>{escape(made.result)}</p>",
        f"<p class=note>Scenario <code>{escape(made.scenario)}</code>, {mode}, {seeds} an arm.</p>",
        *_about(made.about),
        _figures(made),
        *_folded(made),
        _plots(made),
        _pods(made),
        _switches(made),
        _runs(made),
        *_each_seed(made),
        _where(made),
        "</html>",
        "",
    ]
    return "\n".join(part for part in parts if part)


def _about(text: str) -> list[str]:
    """Return the scenario's comment, its lines joined: they were broken for another width."""
    if not text:
        return []
    paragraphs = [" ".join(each.split()) for each in text.split("\n\n")]
    return [
        "<details><summary>About the scenario</summary>",
        *(f"<p>{escape(p)}</p>" for p in paragraphs),
        "</details>",
    ]


def _figures(made: Comparison) -> str:
    """Return what differs: the arms' medians, the differences, and each seed as a dot."""
    shown = made.differing()
    if not shown:
        return ""
    has_strips = len(made.seeds) > 1
    first = made.arms[0].name
    heading = ["", *(arm.name for arm in made.arms)]
    for arm in made.arms[1:]:
        heading += [f"{arm.name} − {first}", "in seeds"]
    cells = [f"<th{' class=text' if name == 'in seeds' else ''}>{escape(name)}" for name in heading]
    cells += ["<th class=text>each seed"] if has_strips else []
    rows = "".join(_figure(made, measure, has_strips=has_strips) for measure in shown)
    note = ""
    if has_strips:
        note = (
            "<p class=note>Medians over seeds, with the quartiles where they differ. A difference is taken within a "
            "seed; its median has a 95 % bootstrap interval, with fewer than 6 seeds the lowest and the highest. "
            "Dots: a row for each arm in the order of the columns, a stroke at the median.</p>"
        )
    title = "What differs" if len(made.arms) > 1 else "Figures"
    return (
        f"<h2>{title}</h2><div class=scroll><table class='cards figures'><tr>{''.join(cells)}{rows}</table></div>{note}"
    )


def _figure(made: Comparison, measure: Measure, *, has_strips: bool) -> str:
    scale = scale_for(measure)
    cells = [f"<td>{escape(measure.label)}"]
    for arm, own in zip(made.arms, measure.arms, strict=True):
        cells.append(
            f"<td class=number data-of='{escape(arm.name, quote=True)}'>{_text(value_text(own, scale, len(arm.runs)))}"
        )
    for found in measure.differences:
        name = escape(f"{found.arm} − {made.arms[0].name}", quote=True)
        judged = judgement(measure, found)
        seeds = f"<span>{escape(seeds_text(made, measure, found))}{f', <b>{judged}</b>' if judged else ''}</span>"
        is_none = "" if found.seeds else " none"
        cells.append(f"<td class='number{is_none}' data-of='{name}'>{_text(difference_text(found, scale))}")
        cells.append(f"<td class=seeds data-of='in seeds'>{seeds}")
    if has_strips:
        cells.append(f"<td class=text data-of='each seed'>{strip(measure, made)}")
    return f"<tr>{''.join(cells)}"


def _text(text: str) -> str:
    """Return a figure, its range set off."""
    value, bracket, rest = text.partition(" [")
    return (
        f"<span>{escape(value.rstrip()).replace(' ', '&nbsp;')}"
        + (f" <span class=range>[{escape(rest)}</span>" if bracket else "")
        + "</span>"
    )


def _folded(made: Comparison) -> list[str]:
    lines = folded(made)
    if not lines:
        return []
    counts = {state: sum(m.state == state for m in made.measures) for state in ("equal", "empty")}
    said = [f"{counts['equal']} measures are equal in all arms"] if counts["equal"] and len(made.arms) > 1 else []
    said += [f"{counts['empty']} have no value"] if counts["empty"] else []
    body = "".join(f"<p>{escape(line)}</p>" for line in lines)
    return [f"<details><summary>{', '.join(said)}</summary>{body}</details>"]


def _plots(made: Comparison) -> str:
    frame = Frame(made.arms)
    figures = []
    for arm in made.arms:
        if arm.bands.phases:
            switches = escape(", ".join(arm.switches))
            caption = f"<figcaption>{escape(arm.name)} <small>{switches}</small></figcaption>"
            figures.append(f"<figure>{caption}{svg(arm, frame)}</figure>")
    if not figures:
        return ""
    several = len(made.seeds) > 1
    bands = "; lines are medians over seeds, bands the quartiles and all seeds" if several else ""
    note = f"<p class=note>All on one scale{bands}. Pods that controllers created, where there are any.</p>"
    return f"<h2>Pods by phase</h2><div class=plots>{''.join(figures)}</div>{note}"


def _pods(made: Comparison) -> str:
    if len(made.arms) < 2:
        return ""
    if not made.difference_count:
        return "<h2>Pod by pod</h2><p>No pod's fate differs.</p>"
    first, rows = made.arms[0].name, []
    for group in made.difference_groups[:GROUPS_MAX]:
        other = group.arm_b if group.arm_a != group.arm_b else f"{group.arm_b}, at another time"
        cells = [
            (first, group.arm_a),
            (group.arm, f"→ {other}"),
            ("arm", group.arm),
            ("seeds", str(group.seeds)),
            ("for example", group.example),
        ]
        shown = "".join(f"<td class=text data-of='{escape(of, quote=True)}'>{escape(text)}" for of, text in cells)
        rows.append(f"<tr><td>{group.pods:,} ×{shown}")
    left = made.difference_groups[GROUPS_MAX:]
    more = f"<p>{sum(g.pods for g in left):,} more in {len(left)} groups are in the JSON document.</p>" if left else ""
    count = "1 pod differs" if made.difference_count == 1 else f"{made.difference_count:,} pods differ"
    return (
        f"<h2>Pod by pod</h2><p>{count} over all seeds, matched by owner and order of creation.</p>"
        f"<div class=scroll><table class=cards><tr><th>pods<th class=text>{escape(first)}<th class=text>other arm"
        f"<th class=text>arm<th class=text>seeds<th class=text>for example{''.join(rows)}</table></div>{more}"
    )


def _switches(made: Comparison) -> str:
    rows = switch_rows(made)
    if not rows:
        return ""
    return f"<h2>Switches</h2>{_table(['switch', 'default', *(arm.name for arm in made.arms)], rows)}"


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = "".join(f"<th class=text>{escape(name)}" for name in heading)
    body = "".join("<tr>" + "".join(f"<td class=text>{escape(cell)}" for cell in row) for row in rows)
    return f"<div class=scroll><table><tr>{cells}{body}</table></div>"


def _runs(made: Comparison) -> str:
    """Return whether runs came to their end without breaking an invariant, and a digest to compare with."""
    rows = []
    for arm in made.arms:
        broken, failed = sum(run.violations for run in arm.runs), sum(bool(run.error) for run in arm.runs)
        result = f"<span class=bad>{broken} violations</span>" if broken else "<span class=good>no violation</span>"
        ended = f"<span class=bad>{failed} of {len(arm.runs)} failed</span>" if failed else f"{len(arm.runs)}"
        digest = next(
            (f"<code>{escape(run.digest[:16])}</code> (seed {run.seed})" for run in arm.runs if run.digest), ""
        )
        rows.append(f"<tr><td>{escape(arm.name)}<td class=text>{ended}<td class=text>{result}<td class=text>{digest}")
    wrong = problems(made)
    lines = "".join(f"<p class=bad>{escape(line)}</p>" for line in wrong[:PROBLEMS_MAX])
    more = f"<p>{len(wrong) - PROBLEMS_MAX} more are in the JSON document.</p>" if len(wrong) > PROBLEMS_MAX else ""
    digest = "<th class=text>digest of the event log" if made.is_simulated else "<th>"
    return (
        "<h2>Runs and invariants</h2><div class=scroll><table><tr><th>arm<th class=text>runs<th class=text>invariants"
        f"{digest}{''.join(rows)}</table></div>{lines}{more}"
    )


def _each_seed(made: Comparison) -> list[str]:
    """Return the figures of each seed, of the measures that matter most."""
    shown = ranked(made.differing())[:MEASURES_MAX]
    if len(made.seeds) < 2 or not shown:
        return []
    heading = ["seed", *(f"{m.label}, {arm.name}" for m in shown for arm in made.arms)]
    by_seed = [{run.seed: run for run in arm.runs if not run.error} for arm in made.arms]
    rows = []
    for seed in made.seeds[:SEEDS_MAX]:
        row = [str(seed)]
        for measure in shown:
            scale = scale_for(measure)
            for runs in by_seed:
                row.append(scale.text(runs[seed].measures.get(measure.name) if seed in runs else None))
        rows.append(row)
    return [f"<details><summary>Each seed</summary>{_table(heading, rows)}</details>"]


def _where(made: Comparison) -> str:
    lines = "".join(f"<dt>{escape(name)}<dd>{escape(what)}" for name, what in provenance_lines(made))
    command = f"<pre><code>{escape(made.provenance.command)}</code></pre>"
    return f"<h2>Where this comes from</h2><dl class=where>{lines}</dl>{command}"
