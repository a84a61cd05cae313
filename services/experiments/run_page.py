"""One self-contained HTML page about one run: its result, its figures, pods by phase, where it comes from. Pure.

It shares palette, plots and figures with the page of a comparison: a run is drawn as an arm with one seed.
"""

from collections.abc import Sequence
from html import escape
from typing import Any, Final, NamedTuple

from services.experiments.bands import Row, bands_of
from services.experiments.document import ArmRuns, Run
from services.experiments.figures import described, in_order, label_of, scale_of
from services.experiments.plots import Frame, svg
from services.experiments.style import head

ROWS_MAX: Final = 40
_STYLE: Final = """
.result { font-size: 1.15rem; max-width: 62rem; border-left: 4px solid var(--running); padding: .1rem 0 .1rem 1rem; }
.where dt { float: left; clear: left; width: 9rem; color: var(--soft); } .where dd { margin: 0 0 .15rem 9.5rem;
  overflow-wrap: anywhere; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: .9rem; } summary { cursor: pointer; }
@media (max-width: 640px) { body { margin: 1rem auto; } .where dt { float: none; } .where dd { margin-left: 0; } }
@media print { @page { margin: 12mm; } body { font-size: 9.5pt; margin: 0; max-width: none; padding: 0; }
  h1 { font-size: 14pt; } h2 { font-size: 11pt; } tr, dl { break-inside: avoid; } .scroll { overflow: visible; } }
"""


class RunPage(NamedTuple):
    """What a page shows. `document`: the element of `keplab run -o json`; `samples`: pods by phase over time; `fates`:
    owner, fate, nodes, how many pods and the first of them; `where`: names and texts; `command`: what repeats it."""

    document: dict[str, Any]
    title: str = ""
    about: str = ""
    samples: Sequence[Row] = ()
    fates: Sequence[tuple[str, str, str, int, str]] = ()
    where: Sequence[tuple[str, str]] = ()
    command: str = ""


def run_page(runs: Sequence[RunPage]) -> str:
    """Return the page of these runs, one below the other."""
    first = runs[0]
    title = first.title or first.document["scenario"]
    parts = [head(title if len(runs) == 1 else f"{len(runs)} runs", "", _STYLE)]
    for run in runs:
        if len(runs) > 1:
            parts.append(f"<h2>{escape(run.title or run.document['scenario'])}</h2>")
        parts += _run(run)
    return "\n".join([*(part for part in parts if part), "</html>", ""])


def _run(run: RunPage) -> list[str]:
    document = run.document
    about = "".join(f"<p>{escape(' '.join(each.split()))}</p>" for each in run.about.split("\n\n") if each)
    return [
        f"<p class=result>{escape(_result(document))}</p>",
        f"<details><summary>About the scenario</summary>{about}</details>" if about else "",
        f"<p class=bad>{escape(document['error'])}</p>" if document.get("error") else "",
        _expectations(document),
        _violations(document),
        _plot(run),
        _measures(document),
        _pods(run),
        _switches(document),
        _where(run),
    ]


def _result(document: dict[str, Any]) -> str:
    met = sum(bool(each["passed"]) for each in document["expectations"])
    count = document.get("violation_count", len(document["violations"]))
    broken = f"{count} violations of invariants" if count else "no invariant was broken"
    word = "Passed" if document["passed"] else "Failed"
    return f"{word}: {met} of {len(document['expectations'])} expectations are met, {broken}."


def _expectations(document: dict[str, Any]) -> str:
    rows = []
    for each in document["expectations"]:
        sign = "<span class=good>met</span>" if each["passed"] else "<span class=bad>not met</span>"
        cells = (str(each["line"]), each["text"], each["seen"])
        texts = "".join(f"<td class=text>{escape(text)}" for text in cells)
        rows.append(f"<tr><td>{each['at_s']:.3f} s{texts}<td class=text>{sign}")
    return _table("Expectations", ("time", "line", "expectation", "seen", "result"), rows)


def _violations(document: dict[str, Any]) -> str:
    rows = []
    for each in document["violations"]:
        cells = (each["invariant"], f"{each['at']:.3f} s", ", ".join(each["objects"]), each["detail"])
        rows.append("<tr>" + "".join(f"<td class=text>{escape(text)}" for text in cells))
    return _table("Violations", ("invariant", "time", "objects", "what"), rows)


def _table(title: str, names: Sequence[str], rows: Sequence[str]) -> str:
    if not rows:
        return ""
    heading = "<th>" + escape(names[0]) + "".join(f"<th class=text>{escape(name)}" for name in names[1:])
    left = len(rows) - ROWS_MAX
    more = f"<p>{left} more are in the JSON document.</p>" if left > 0 else ""
    body = "".join(rows[:ROWS_MAX])
    return f"<h2>{escape(title)}</h2><div class=scroll><table><tr>{heading}{body}</table></div>{more}"


def _plot(run: RunPage) -> str:
    if not run.samples:
        return ""
    made = Run(run.document["seed"])
    arm = ArmRuns("run", list(run.document.get("switches", ())), [made], bands_of([run.samples]))
    return f"<h2>Pods by phase</h2><figure>{svg(arm, Frame([arm]))}</figure>"


def _measures(document: dict[str, Any]) -> str:
    found = {name: value for name, value in document.get("measures", {}).items() if value is not None}
    rows, zeros = [], []
    for name in in_order(found):
        measure = described(name)
        if not found[name]:
            zeros.append(label_of(measure))
            continue
        text = scale_of(measure.unit, [found[name]]).text(found[name])
        rows.append(f"<tr><td>{escape(label_of(measure))}<td class=text>{escape(text)}")
    folded = ""
    if zeros:
        folded = f"<details><summary>{len(zeros)} measures are 0</summary><p>{escape(', '.join(zeros))}</p></details>"
    return _table("Figures", ("", "this run"), rows) + folded


def _pods(run: RunPage) -> str:
    rows = []
    for owner, fate, nodes, pods, first in run.fates:
        cells = (owner, fate, nodes or "no node", first if pods > 1 else "")
        rows.append(f"<tr><td>{pods:,} ×" + "".join(f"<td class=text>{escape(text)}" for text in cells))
    return _table("Pods", ("pods", "owner", "became", "on", "the first"), rows)


def _switches(document: dict[str, Any]) -> str:
    rows = []
    for text in document.get("switches", ()):
        name, _, value = text.partition("=")
        rows.append(f"<tr><td>{escape(name)}<td class=text>{escape(value)}")
    return _table("Switches", ("switch", "value"), rows)


def _where(run: RunPage) -> str:
    document = run.document
    texts = [
        *run.where,
        ("scenario", document["scenario"]),
        ("mode and seed", f"{document['mode']}, seed {document['seed']}"),
        ("digest", document["digest"] or "none: real processes"),
        ("time", f"{document['virtual_s']:g} s in the scenario, {document['wall_s']:g} s to run"),
    ]
    lines = "".join(f"<dt>{escape(name)}<dd>{escape(text)}" for name, text in texts)
    command = f"<pre><code>{escape(run.command)}</code></pre>" if run.command else ""
    return f"<h2>Where this comes from</h2><dl class=where>{lines}</dl>{command}"
