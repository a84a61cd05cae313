"""The page of runs: whether each passed, its figures, pods by phase, and its provenance. Pure.

`runs_document` is the data of the page (lab/ui/static/js/runs.js draws it); `plain_runs` is the same as
HTML for viewers without scripts. A run is drawn as an arm with one seed.
"""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, Final, NamedTuple

import msgspec

from lab.experiments.bands import Bands, Row, bands_of
from lab.experiments.figures import describe_measure, in_order, label_of, scale_of
from lab.experiments.page_document import paragraphs
from lab.experiments.static_html import list_html, table_html
from lab.experiments.wording import count_text

SCHEMA: Final = "keplab.runs"
ROWS_MAX: Final = 40


class RunPage(NamedTuple):
    """Content of a run's page.

    `document`: the element of `keplab run -o json`; `samples`: pods by phase over time; `fates`: owner, fate,
    nodes, number of pods and the first of them; `where`: names and texts; `command`: the command that repeats
    the run.
    """

    document: dict[str, Any]
    title: str = ""
    about: str = ""
    samples: Sequence[Row] = ()
    fates: Sequence[tuple[str, str, str, int, str]] = ()
    where: Sequence[tuple[str, str]] = ()
    command: str = ""


class Table(msgspec.Struct, frozen=True):
    """A table of texts. `left`: number of rows that are omitted."""

    title: str
    heading: list[str]
    rows: list[list[str]]
    left: int = 0


class PhaseArm(msgspec.Struct, frozen=True):
    """Pods by phase, in the shape of a comparison's arm."""

    name: str
    switches: list[str]
    bands: Bands


class ShownRun(msgspec.Struct, frozen=True):
    """One run as the page shows it.

    `checks`: tables of failed expectations and violated invariants; `tables`: the others; `zeros`: measures
    that are 0; `arm`: None where pods by phase are not known.
    """

    title: str
    result: str
    about: list[str]
    error: str
    checks: list[Table]
    arm: PhaseArm | None
    tables: list[Table]
    zeros: str
    where: list[tuple[str, str]]
    command: str


def runs_document(runs: Sequence[RunPage]) -> dict[str, Any]:
    """Return the data of the page for these runs."""
    shown = [shown_run(run) for run in runs]
    title = shown[0].title if len(shown) == 1 else f"{count_text(len(shown), 'run')}"
    return {"schema": SCHEMA, "title": title, "runs": msgspec.to_builtins(shown)}


def shown_run(run: RunPage) -> ShownRun:
    """Return one run as the page shows it."""
    document = run.document
    figures, zeros = _figures(document)
    switches = [list(text.partition("=")[::2]) for text in document.get("switches", ())]
    fates = [
        [f"{pods:,} ×", owner, fate, nodes or "no node", first if pods > 1 else ""]
        for owner, fate, nodes, pods, first in run.fates
    ]
    return ShownRun(
        title=run.title or document["scenario"],
        result=_result(document),
        about=paragraphs(run.about),
        error=document.get("error") or "",
        checks=_tables(
            ("Expectations", ["time", "line", "expectation", "seen", "result"], _expectations(document)),
            ("Violations", ["invariant", "time", "objects", "what"], _violations(document)),
        ),
        arm=PhaseArm("", list(document.get("switches", ())), bands_of([run.samples])) if run.samples else None,
        tables=_tables(
            ("Figures", ["", "this run"], figures),
            ("Pods", ["pods", "owner", "became", "on", "the first"], fates),
            ("Switches", ["switch", "value"], switches),
        ),
        zeros=_zeros(zeros),
        where=[*run.where, *_where(document)],
        command=run.command,
    )


def plain_runs(runs: Sequence[RunPage]) -> str:
    """Return the same content as HTML without style and script."""
    return "".join("".join(_plain(shown_run(run))) for run in runs)


def _plain(run: ShownRun) -> Iterator[str]:
    yield f"<h1>{escape(run.title)}</h1><p><b>{escape(run.result)}</b></p>"
    yield from (f"<p>{escape(each)}</p>" for each in (*run.about, run.error, run.zeros) if each)
    for table in (*run.checks, *run.tables):
        yield table_html(table.title, table.heading, table.rows)
        yield f"<p>{_left_out_text(table.left)}</p>" if table.left else ""
    yield f"<h2>Where this comes from</h2>{list_html([f'{name}: {what}' for name, what in run.where])}"
    yield f"<pre>{escape(run.command)}</pre>" if run.command else ""


def _zeros(names: Sequence[str]) -> str:
    if not names:
        return ""
    return f"{count_text(len(names), 'measure is', 'measures are')} 0: {', '.join(names)}."


def _left_out_text(rows: int) -> str:
    return f"{rows:,} more are in the JSON document."


def _result(document: dict[str, Any]) -> str:
    met = sum(bool(each["passed"]) for each in document["expectations"])
    count = document.get("violation_count", len(document["violations"]))
    broken = f"{count_text(count, 'violation')} of invariants" if count else "no invariant was broken"
    word = "Passed" if document["passed"] else "Failed"
    return f"{word}: {met} of {len(document['expectations'])} expectations are met, {broken}."


def _tables(*all_tables: tuple[str, list[str], list[list[str]]]) -> list[Table]:
    """Return the tables that have rows, long ones cut."""
    return [
        Table(title, heading, rows[:ROWS_MAX], max(0, len(rows) - ROWS_MAX))
        for title, heading, rows in all_tables
        if rows
    ]


def _expectations(document: dict[str, Any]) -> list[list[str]]:
    return [
        [f"{each['at_s']:.3f} s", str(each["line"]), each["text"], each["seen"], "met" if each["passed"] else "not met"]
        for each in document["expectations"]
    ]


def _violations(document: dict[str, Any]) -> list[list[str]]:
    return [
        [each["invariant"], f"{each['at']:.3f} s", ", ".join(each["objects"]), each["detail"]]
        for each in document["violations"]
    ]


def _figures(document: dict[str, Any]) -> tuple[list[list[str]], list[str]]:
    """Return the measures that have a value, and the names of those that are 0."""
    measures = {name: value for name, value in document.get("measures", {}).items() if value is not None}
    rows, zeros = [], []
    for name in in_order(measures):
        measure = describe_measure(name)
        if measures[name]:
            rows.append([label_of(measure), scale_of(measure.unit, [measures[name]]).text(measures[name])])
        else:
            zeros.append(label_of(measure))
    return rows, zeros


def _where(document: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("scenario", document["scenario"]),
        ("mode and seed", f"{document['mode']}, seed {document['seed']}"),
        ("digest", document["digest"] or "none: real processes"),
        ("time", f"{document['virtual_s']:g} s in the scenario, {document['wall_s']:g} s to run"),
    ]
