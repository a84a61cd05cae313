"""A comparison as data for the page: the document, with the figures and sentences of the other views. Pure.

The page draws, sorts and folds; it formats no figure itself, so that it, a terminal and a pull request
cannot differ.
"""

from typing import Any, Final

import msgspec

from lab.experiments.document import Comparison, Measure, document_of
from lab.experiments.headline import rank_measures
from lab.experiments.statistics import Paired
from lab.experiments.views import (
    difference_text,
    folded_lines,
    judgement,
    pods_text,
    problems,
    provenance_lines,
    scale_for,
    seeds_text,
    value_text,
)
from lab.experiments.wording import count_text

PROBLEMS_MAX: Final = 40
NOTE_OF_SEEDS: Final = (
    "Medians over seeds, with the quartiles where they differ. A difference is taken within a seed; its median has "
    "a 95 % bootstrap interval, with fewer than 6 seeds the lowest and the highest. Dots: a row for each arm in the "
    "order of the columns, a stroke at the median."
)


class ScaleOf(msgspec.Struct, frozen=True):
    """Format of a measure's figures: value times `factor`, number of digits after the point, and unit."""

    factor: float
    unit: str
    digits: int


class Difference(msgspec.Struct, frozen=True):
    """Difference of an arm from the first one.

    `text`: the median with its interval; `seeds`: number of seeds with its sign; `judged`: better, worse or
    empty; `is_clear`: whether it has a direction; `p`: of the sign test, empty without one.
    """

    arm: str
    text: str
    seeds: str
    judged: str
    is_clear: bool
    p: str


class Row(msgspec.Struct, frozen=True):
    """A measure with its median in each arm, and its differences."""

    name: str
    scale: ScaleOf
    values: list[str]
    differences: list[Difference]


class PageTexts(msgspec.Struct, frozen=True):
    """Texts of a page besides the numbers.

    `rows`: in the order of the document's measures; `first`: names of the measures in the table, the most
    important first; `folded`: sentences on what the table leaves out; `pods`: number of pods with another
    fate; `problems`: what went wrong in runs, of which `problems_left` are omitted; `where`: names and texts.
    """

    note: str
    note_of_seeds: str
    about: list[str]
    rows: list[Row]
    first: list[str]
    folded: list[str]
    pods: str
    problems: list[str]
    problems_left: int
    where: list[tuple[str, str]]


def page_texts(comparison: Comparison) -> PageTexts:
    """Return the sentences and figures of a comparison."""
    wrong = problems(comparison)
    return PageTexts(
        note=note_text(comparison),
        note_of_seeds=NOTE_OF_SEEDS if len(comparison.seeds) > 1 else "",
        about=paragraphs(comparison.about),
        rows=[_row(comparison, measure) for measure in comparison.measures],
        first=[measure.name for measure in rank_measures(comparison.tabled_measures())],
        folded=folded_lines(comparison),
        pods=f"{pods}." if (pods := pods_text(comparison)) else "",
        problems=wrong[:PROBLEMS_MAX],
        problems_left=max(0, len(wrong) - PROBLEMS_MAX),
        where=provenance_lines(comparison),
    )


def page_document(made: Comparison) -> dict[str, Any]:
    """Return the data of the page: the document, with the sentences and figures under `shown`."""
    return {**document_of(made), "shown": msgspec.to_builtins(page_texts(made))}


def note_text(made: Comparison) -> str:
    """Return one sentence on what was run."""
    seeds = count_text(len(made.seeds), "seed")
    return f"Scenario {made.scenario}, {made.mode_text.removesuffix(' over gRPC')}, {seeds} an arm."


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a scenario's comment, each joined into one line."""
    return [" ".join(each.split()) for each in text.split("\n\n") if each.strip()]


def _row(comparison: Comparison, measure: Measure) -> Row:
    scale = scale_for(measure)
    values = [value_text(own, scale, len(arm.runs)) for arm, own in zip(comparison.arms, measure.arms, strict=True)]
    differences = [
        Difference(
            found.arm,
            difference_text(found, scale),
            seeds_text(comparison, measure, found),
            judgement(comparison, measure, found),
            comparison.is_clear(measure, found),
            _p(found) if not comparison.why_not_judged else "",
        )
        for found in measure.differences
    ]
    return Row(measure.name, ScaleOf(scale.factor, scale.unit, scale.digits), values, differences)


def _p(found: Paired) -> str:
    if found.p is None:
        return ""
    return "p < 0.001" if found.p < 0.001 else f"p = {found.p:.3f}"
