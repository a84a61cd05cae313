"""One self-contained HTML page about a comparison: figures, plots, pods that differ. Opens without a network.

Pure: a comparison in, text out. Plots are inline SVG; there is no script. Everything that came from a
cluster is escaped.
"""

from html import escape

from services.experiments.compare import Comparison
from services.experiments.style import head, ticks
from services.scenarios.measures.history import Sample
from services.scenarios.result import RunResult

MEASURES: tuple[tuple[str, str, str], ...] = (
    ("pods_created", "Pods created", "{:.0f}"),
    ("pods_failed", "Pods failed", "{:.0f}"),
    ("failed_per_min", "Failed pods per minute", "{:.0f}"),
    ("pods_running_at_end", "Pods Running at the end", "{:.0f}"),
    ("pods_disturbed", "Pods that ran and then failed", "{:.0f}"),
    ("unbinds", "Unbinds", "{:.0f}"),
    ("first_running_s", "First pod Running after", "{:.2f} s"),
    ("time_to_running_p50_s", "Time to Running, p50", "{:.2f} s"),
    ("time_to_running_p99_s", "Time to Running, p99", "{:.2f} s"),
    ("rejected_to_running_p50_s", "Rejection to Running, p50", "{:.2f} s"),
    ("rejected_to_running_p99_s", "Rejection to Running, p99", "{:.2f} s"),
    ("api_writes", "API writes (without heartbeats)", "{:.0f}"),
    ("api_writes_per_running_pod", "API writes per finally running pod", "{:.0f}"),
    ("status_patches", "Status patches by the scheduler", "{:.0f}"),
    ("status_missing_min", "Pods' status is missing a reason, minutes", "{:.2f}"),
    ("status_stale_min", "Pods' status is stale, minutes", "{:.2f}"),
)
"""`(key, label, format)` in the order tables show them."""
OF_SOME: tuple[tuple[str, str, str], ...] = (
    ("gate_reports", "Reports of PreEnqueue", "{:.0f}"),
    ("gate_report_kib", "Reports of PreEnqueue, KiB", "{:.1f}"),
    ("gate_reason_seen_p50_s", "Rejection at PreEnqueue to its reason, p50", "{:.2f} s"),
    ("gate_reason_seen_p99_s", "Rejection at PreEnqueue to its reason, p99", "{:.2f} s"),
    ("status_misleading_min", "Pods untried said to need nodes, minutes", "{:.2f}"),
    ("victims", "Victims of preemption", "{:.0f}"),
    ("evicted_cpu", "CPU that victims had", "{:.2f}"),
    ("evicted_memory_gib", "Memory that victims had, GiB", "{:.2f}"),
    ("resizes_asked", "Resizes asked for", "{:.0f}"),
    ("resizes_met", "Resizes that came true", "{:.0f}"),
    ("time_to_resized_p50_s", "Time to resized, p50", "{:.2f} s"),
    ("time_to_resized_p99_s", "Time to resized, p99", "{:.2f} s"),
    ("resize_attempts", "Attempts to preempt for resizes", "{:.0f}"),
    ("jobs_complete", "Jobs complete", "{:.0f}"),
    ("jobs_failed", "Jobs failed", "{:.0f}"),
    ("claim_writes", "Writes of ResourceClaims", "{:.0f}"),
    ("claim_kib_written", "ResourceClaims written, KiB", "{:.1f}"),
    ("claim_watch_kib", "ResourceClaims sent to watchers, KiB", "{:.1f}"),
    ("claim_conflicts", "Conflicts at ResourceClaims", "{:.0f}"),
    ("claim_consumers_max", "Most consumers of one ResourceClaim", "{:.0f}"),
    ("claim_unused_p50_s", "From the last pod's end to deallocation, p50", "{:.2f} s"),
    ("claim_unused_p99_s", "From the last pod's end to deallocation, p99", "{:.2f} s"),
    ("job_duration_p50_s", "Time from a Job's creation to its end, p50", "{:.1f} s"),
)
"""The same, for runs in which there is any of it."""

_COLOURS = {"pending": "#c9a227", "running": "#2f7d4f", "failed": "#b3382c"}
_WIDTH, _HEIGHT, _PAD = 560, 220, 42


def shown(form: str, value: float | None) -> str:
    """Return a measure as tables show it; a dash when there is none."""
    return "–" if value is None else form.format(value)


def median(values: list[float | None]) -> float | None:
    """Return the middle of what is there, or None."""
    ordered = sorted(v for v in values if v is not None)
    return ordered[len(ordered) // 2] if ordered else None


def rows(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """Return the comparison table: label, then the median over seeds for each arm."""
    runs_of_all = [run for _, runs in comparison.arms for run in runs]
    measured = [measure for measure in OF_SOME if any(run.measures.get(measure[0]) for run in runs_of_all)]
    return [
        (label, [shown(form, median([r.measures.get(key) for r in runs])) for _, runs in comparison.arms])
        for key, label, form in (*MEASURES, *measured)
    ]


def page(comparison: Comparison, title: str, about: str) -> str:
    """Return the whole page."""
    seeds = len(comparison.arms[0][1]) if comparison.arms else 0
    parts = [
        head(title, about),
        (
            f"<p>Scenario <code>{escape(comparison.scenario)}</code>, {escape(comparison.mode)}, "
            f"{seeds} {'seed' if seeds == 1 else 'seeds'} an arm. Figures are medians over seeds.</p>"
        ),
        _figures(comparison),
        "<h2>Pods by phase</h2><div class=plots>",
        *(_plot(arm.name, ", ".join(arm.assignments), runs[0], comparison) for arm, runs in comparison.arms),
        "</div>",
        _results(comparison),
        _differences(comparison),
        "</html>",
    ]
    return "\n".join(parts)


def _figures(comparison: Comparison) -> str:
    head = "".join(f"<th>{escape(arm.name)}" for arm, _ in comparison.arms)
    body = ""
    for label, cells in rows(comparison):
        body += f"<tr><td>{escape(label)}" + "".join(f"<td>{escape(cell)}" for cell in cells)
    return f"<h2>Figures</h2><div class=scroll><table><tr><th>{head}{body}</table></div>"


def _plot(name: str, switches: str, run: RunResult, comparison: Comparison) -> str:
    """Draw pods by phase over time. Every arm has its own vertical scale: a runaway dwarfs its cure."""
    samples = run.samples or [Sample(0, 0, 0, 0, 0)]
    end = max((r.virtual_s for _, runs in comparison.arms for r in runs[:1]), default=1.0) or 1.0
    top = max(1, *(max(s.pending, s.running, s.failed) for s in samples))

    def x(t: float) -> float:
        return _PAD + (_WIDTH - _PAD - 70) * min(t / end, 1.0)

    def y(v: float) -> float:
        return _HEIGHT - 26 - (_HEIGHT - 44) * v / top

    parts = [
        f"<figure><figcaption>{escape(name)} <small>{escape(switches)}</small></figcaption>",
        (
            f"<svg viewBox='0 0 {_WIDTH} {_HEIGHT}' width={_WIDTH} role=img "
            f"aria-label='pods by phase over time in arm {escape(name, quote=True)}'>"
        ),
    ]
    for tick in ticks(top):
        parts.append(f"<line class=axis x1={_PAD} x2={_WIDTH - 70} y1={y(tick):.1f} y2={y(tick):.1f} />")
        parts.append(f"<text x={_PAD - 6} y={y(tick) + 4:.1f} text-anchor=end>{tick:g}</text>")
    for tick in ticks(end):
        parts.append(f"<text x={x(tick):.1f} y={_HEIGHT - 8} text-anchor=middle>{tick:g} s</text>")
    # Some 400 points are enough; the last one always is among them.
    thin = samples[:: max(1, len(samples) // 400)]
    if samples[-1] not in thin:
        thin.append(samples[-1])
    labels: list[float] = []
    for phase in ("failed", "running", "pending"):
        points = " ".join(f"{x(s.at_s):.1f},{y(getattr(s, phase)):.1f}" for s in thin)
        colour = _COLOURS[phase]
        parts.append(f"<polyline fill=none stroke='{colour}' stroke-width=2 points='{points}' />")
        at = y(getattr(samples[-1], phase)) + 4
        while any(abs(at - other) < 12 for other in labels):
            at -= 12
        labels.append(at)
        parts.append(
            f"<text x={_WIDTH - 64} y={at:.1f} style='fill:{colour}'>{phase} {getattr(samples[-1], phase)}</text>"
        )
    parts.append("</svg></figure>")
    return "".join(parts)


def _results(comparison: Comparison) -> str:
    lines = []
    for arm, runs in comparison.arms:
        broken = sum(run.violation_count for run in runs)
        result = f"<span class=bad>{broken} violations</span>" if broken else "<span class=good>no violation</span>"
        lines.append(
            f"<tr><td>{escape(arm.name)}<td class=text>{result}<td class=text><code>{runs[0].digest[:16]}</code>"
        )
        for violation in [v for run in runs for v in run.violations][:20]:
            what = f"{violation.invariant} at {violation.at:.3f} s: {', '.join(violation.objects)}: {violation.detail}"
            lines.append(f"<tr><td><td class='text bad' colspan=2>{escape(what)}")
        for run in runs:
            if run.error:
                lines.append(f"<tr><td><td class='text bad' colspan=2>seed {run.seed}: {escape(run.error)}")
    return (
        "<h2>Invariants</h2><table><tr><th>Arm<th class=text>Result<th class=text>Digest of the first seed"
        f"{''.join(lines)}</table>"
    )


def _differences(comparison: Comparison, most: int = 200) -> str:
    if not comparison.arms[1:]:
        return ""
    first = comparison.arms[0][0].name
    if not comparison.difference_count:
        return "<h2>Pod by pod</h2><p>No pod's fate differs.</p>"
    body = "".join(
        f"<tr><td>{escape(d.pod)}<td>{d.seed}<td class=text>{escape(d.first or 'was never created')}"
        f"<td class=text>{escape(d.arm)}: {escape(d.other or 'was never created')}"
        for d in comparison.differences[:most]
    )
    more = comparison.difference_count - min(most, len(comparison.differences))
    rest = f"<p>{more} more are in the JSON document.</p>" if more > 0 else ""
    return (
        f"<h2>Pod by pod</h2><p>{comparison.difference_count} pods differ. Pods are matched by owner and order of "
        f"creation.</p><div class=scroll><table><tr><th>Pod<th>Seed<th class=text>{escape(first)}"
        f"<th class=text>other arm{body}</table></div>{rest}"
    )
