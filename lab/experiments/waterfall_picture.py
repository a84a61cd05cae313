"""A pod's waterfall as a self-contained SVG: bars by service, the critical path below. Pure.

All names come from a cluster, so they are escaped. lab/ui/static/js/pages/trace.js draws the same rows.
"""

from html import escape

from lab.experiments.axis import ticks
from lab.experiments.style import colour_of, of_svg
from lab.experiments.trace_page import heading
from lab.scenarios.traces.waterfall import Row, Waterfall, label

_WIDTH, _NAMES, _RIGHT, _TOP, _LINE = 1180, 430, 110, 46, 20
_STYLE = of_svg(".cut { stroke: var(--paper); stroke-width: 0.5; } .head { font-size: 13px; }")


def svg_picture(fall: Waterfall) -> str:
    """Return the waterfall as one SVG document."""
    height = _TOP + _LINE * len(fall.rows) + 56
    parts = [
        (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {height}' width='{_WIDTH}' "
            f"height='{height}' role='img' aria-label='{escape(heading(fall), quote=True)}'>"
        ),
        f"<style>{_STYLE}</style><rect class='back' width='{_WIDTH}' height='{height}' />",
        f"<text class='head' x='8' y='18'>{escape(heading(fall))}</text>",
        *_axis(fall, height),
        *(_bar(fall, row, _TOP + _LINE * number) for number, row in enumerate(fall.rows)),
        *_path(fall, height - 46),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _x(fall: Waterfall, at_ns: int) -> float:
    whole = max(fall.end_ns - fall.begin_ns, 1)
    return _NAMES + (_WIDTH - _NAMES - _RIGHT) * min(1.0, max(0.0, (at_ns - fall.begin_ns) / whole))


def _axis(fall: Waterfall, height: int) -> list[str]:
    parts = []
    unit_ns, unit = (1_000_000, "ms") if fall.end_ns - fall.begin_ns >= 4_000_000 else (1_000, "µs")
    for tick in ticks((fall.end_ns - fall.begin_ns) / unit_ns):
        x = _x(fall, fall.begin_ns + round(tick * unit_ns))
        parts.append(f"<line class='axis' x1='{x:.1f}' x2='{x:.1f}' y1='{_TOP - 8}' y2='{height - 16}' />")
        parts.append(f"<text x='{x:.1f}' y='{_TOP - 12}' text-anchor='middle'>{tick:g} {unit}</text>")
    return parts


def _bar(fall: Waterfall, row: Row, y: int) -> str:
    span = row.span
    left, right = _x(fall, span.start_ns), _x(fall, span.end_ns)
    colour, strength, name_class = colour_of(span.service), "1" if row.is_critical else "0.4", "name" * row.is_critical
    name = label(span)
    width = max(12, (_NAMES - 16 - 12 * row.depth) // 6)
    shown = name if len(name) <= width else name[: width - 1] + "…"
    start, length = (span.start_ns - fall.begin_ns) / 1e6, (span.end_ns - span.start_ns) / 1e6
    tip = f"{name}: from {start:.3f} ms, {length:.3f} ms{' · ' + span.error if span.error else ''}"
    return (
        f"<g><title>{escape(tip)}</title>"
        f"<text class='{name_class}' x='{8 + 12 * row.depth}' y='{y + 13}'>{escape(shown)}</text>"
        f"<rect x='{left:.1f}' y='{y + 4}' width='{max(right - left, 1.5):.1f}' height='{_LINE - 8}' rx='2' "
        f"style='fill:{colour};stroke:{colour}' fill-opacity='{strength}' />"
        f"<text x='{_WIDTH - 8}' y='{y + 13}' text-anchor='end'>{length:.2f} ms</text></g>"
    )


def _path(fall: Waterfall, y: int) -> list[str]:
    parts = [f"<text class='name' x='8' y='{y + 13}'>critical path</text>"]
    for piece in fall.critical_path:
        left, right = _x(fall, piece.start_ns), _x(fall, piece.end_ns)
        colour = colour_of(piece.what.partition(":")[0])
        parts.append(
            f"<g><title>{escape(piece.what)}: {piece.ms:.3f} ms</title><rect x='{left:.1f}' y='{y}' "
            f"width='{max(right - left, 0.5):.1f}' height='{_LINE - 4}' class='cut' "
            f"style='fill:{colour}' /></g>"
        )
    return parts
