"""Report of a soak: figures with their trends, as table rows, as a JSON document, and as a page with charts.

Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final

import msgspec

from lab.benchmarks.soak.figures import FIGURES, Counts, Sample
from lab.benchmarks.soak.trend import Result, Trend, fit, judge
from lab.experiments.style import colour_of, of_svg
from services.runtime.components import component_of

RISING: Final = frozenset({"grows"})
SETTLE_SHARE: Final = 0.25
"""Share of the warm-up for which samples of a restarted process are left out."""
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 360, 150, 46, 14, 20
DASHES: Final = ("", "6 3", "2 3", "9 3 2 3", "1 4")
"""Dash patterns that distinguish processes of one component, which share a colour."""
HEADINGS = ("FIGURE", "OF", "MEAN", "SLOPE/h", "95 %", "LIMIT/h", "RESULT")


@dataclass(frozen=True)
class Row:
    """One figure of one process, or of the mesh."""

    figure: str
    of: str
    unit: str
    trend: Trend | None
    limit_per_hour: float | None
    result: Result

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the row for a terminal."""
        title = f"{FIGURES[self.figure].title}{f', {self.unit}' if self.unit else ''}"
        limit = "" if self.limit_per_hour is None else f"{self.limit_per_hour:,.1f}"
        if self.trend is None:
            return title, self.of, "", "", "", limit, self.result
        trend = self.trend
        interval = f"{trend.low:+,.2f} to {trend.high:+,.2f}"
        return title, self.of, f"{trend.mean:,.1f}", f"{trend.per_hour:+,.2f}", interval, limit, self.result


@dataclass
class Soak:
    """A soak that has ended, or was interrupted. `hours` and `warm_up_s`: as requested; `took_s`: actual duration."""

    hours: float
    warm_up_s: float
    took_s: float
    nodes: int
    seed: int
    load_average: tuple[float, float]
    counts: Counts
    faults: dict[str, int]
    samples: list[Sample] = field(default_factory=list)
    is_interrupted: bool = False

    def rows(self) -> list[Row]:
        """Judge every figure by its samples after the warm-up, and return the rows."""
        judged_h = max(0.0, self.took_s - self.warm_up_s) / 3600
        series: dict[tuple[str, str], list[Sample]] = {}
        for sample in self._settled_samples():
            series.setdefault((sample.figure, sample.of), []).append(sample)
        judged_rows: list[Row] = []
        for name, figure in FIGURES.items():
            for of in sorted({of for other, of in series if other == name}):
                samples = series[name, of]
                trend = fit([s.at_s for s in samples], [s.value for s in samples], [s.life for s in samples])
                limit = figure.limit.per_hour(trend) if figure.limit is not None and trend is not None else None
                judged_rows.append(Row(name, of, figure.unit, trend, limit, judge(trend, figure.limit, judged_h)))
        return judged_rows

    def _settled_samples(self) -> list[Sample]:
        """Return the samples after the warm-up, without those of processes that have just started."""
        births: dict[tuple[str, int], float] = {}
        for sample in self.samples:
            if sample.life:
                births.setdefault((sample.of, sample.life), sample.at_s)
        settle_s = SETTLE_SHARE * self.warm_up_s
        return [
            sample
            for sample in self.samples
            if sample.at_s >= self.warm_up_s
            and (not sample.life or sample.at_s >= births[sample.of, sample.life] + settle_s)
        ]

    @property
    def summary(self) -> str:
        """One sentence on what was run."""
        faults = ", ".join(f"{number} {kind}s" for kind, number in sorted(self.faults.items())) or "no fault"
        return (
            f"{self.took_s / 3600:.2f} h, of which {self.warm_up_s / 60:.0f} min warm-up; {self.nodes} nodes; "
            f"{self.counts.created:,} pods and jobs created, {self.counts.ran:,} seen Running, {self.counts.stuck} not "
            f"within a minute, {self.counts.failed_calls} calls failed; {faults}; load average of the machine "
            f"{self.load_average[0]:.1f} at the start, {self.load_average[1]:.1f} at the end; seed {self.seed}"
        )

    def document(self) -> dict[str, Any]:
        """Return the whole result as JSON values, samples included."""
        rows = [msgspec.to_builtins(row) for row in self.rows()]
        return {**msgspec.to_builtins(self), "rows": rows, "grows": any(row["result"] in RISING for row in rows)}


def page(soak: Soak) -> str:
    """Return the report as Markdown with one SVG chart per figure."""
    lines = ["# Soak", "", soak.summary + ".", "", f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
    lines += [f"| {' | '.join(row.cells())} |" for row in soak.rows()]
    lines += [
        "",
        "`grows`: above its limit, and surely above nothing. `unclear`: above its limit, but it may be chance.",
    ]
    lines += ["`too short`: restarts left less than half of the time. `reported`: has no limit.", ""]
    for name, figure in FIGURES.items():
        picture = _picture([sample for sample in soak.samples if sample.figure == name], soak.warm_up_s)
        if picture:
            lines += [f"## {figure.title}{f', {figure.unit}' if figure.unit else ''}", "", picture, ""]
    return "\n".join(lines)


def _picture(samples: Sequence[Sample], warm_up_s: float) -> str:
    """Return the course of one figure: a line for each process, the warm-up shaded; "" without samples."""
    if len(samples) < 2:
        return ""
    end_s, top = max(sample.at_s for sample in samples), max(max(sample.value for sample in samples), 1e-9)

    def x(at_s: float) -> float:
        return LEFT + (WIDTH - LEFT - 8) * at_s / max(end_s, 1e-9)

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top)

    size = f"viewBox='0 0 {WIDTH + 150} {HEIGHT}' width='{WIDTH + 150}' height='{HEIGHT}'"
    shade = x(min(warm_up_s, end_s)) - LEFT
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' {size}><style>{' '.join(of_svg().split())}</style>",
        f"<rect class='back' width='{WIDTH + 150}' height='{HEIGHT}' />",
        (
            f"<rect x='{LEFT}' y='{TOP}' width='{shade:.1f}' height='{HEIGHT - TOP - BOTTOM}' opacity='0.25' "
            "style='fill:var(--other)' />"
        ),
        *(_text(LEFT - 4, y(value) + 4, f"{value:,.4g}", "end") for value in (0.0, top)),
        _text(LEFT, HEIGHT - 6, "0 min", "start"),
        _text(x(end_s), HEIGHT - 6, f"{end_s / 60:.0f} min", "end"),
    ]
    drawn: dict[str, int] = {}
    for place, of in enumerate(sorted({sample.of for sample in samples})):
        colour = colour_of(component_of(of))
        number = drawn[colour] = drawn.get(colour, -1) + 1
        look = (
            f"style='stroke:{colour}' fill='none' stroke-width='1.2' stroke-dasharray='{DASHES[number % len(DASHES)]}'"
        )
        lives: dict[int, list[str]] = {}
        for sample in samples:
            if sample.of == of:
                lives.setdefault(sample.life, []).append(f"{x(sample.at_s):.1f},{y(sample.value):.1f}")
        for points in lives.values():
            parts.append(f"<polyline points='{' '.join(points)}' {look} />")
        if of:
            row = TOP + 10 + 13 * place
            parts.append(f"<line x1='{WIDTH + 4}' x2='{WIDTH + 26}' y1='{row - 4}' y2='{row - 4}' {look} />")
            parts.append(_text(WIDTH + 30, row, of, "start"))
    return "".join([*parts, "</svg>"])


def _text(x: float, y: float, text: str, anchor: str) -> str:
    place = f"x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'"
    return f"<text {place}>{escape(text)}</text>"
