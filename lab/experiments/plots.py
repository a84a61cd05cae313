"""Pods by phase over time as SVG, for pictures: arms on one scale. Pure.

The live page draws the same from the same bands (lab/ui/static/js/plots.js).
"""

from collections.abc import Sequence
from typing import Final

from lab.experiments.axis import ticks, time_ticks
from lab.experiments.bands import Band
from lab.experiments.document import ArmRuns

WIDTH, HEIGHT = 560, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 104, 10, 24
SIGNS: Final = {"pending": "○", "running": "●", "failed": "✕", "succeeded": "✓"}
DASHES: Final = {"pending": "2 3", "running": "", "failed": "7 3", "succeeded": "1 4"}
"""Dash patterns that distinguish phases in addition to their colours."""
_LABEL_PX: Final = 13.0


class Frame:
    """The scale that all plots of a page share."""

    def __init__(self, arms: Sequence[ArmRuns]) -> None:
        bands = [(arm.bands.at_s, band) for arm in arms for band in arm.bands.phases]
        self.end_s = max((at_s[-1] for at_s, _ in bands), default=0.0) or 1.0
        self.top = max((max(band.high) for _, band in bands), default=0.0) or 1.0

    def x(self, at_s: float) -> float:
        """Return the x coordinate of a moment."""
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * at_s / self.end_s

    def y(self, count: float) -> float:
        """Return the y coordinate of a number of pods."""
        return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * count / self.top

    def grid(self) -> list[str]:
        """Return both axes with their grid lines."""
        right, base = WIDTH - _RIGHT, HEIGHT - _BOTTOM
        parts = []
        for count in ticks(self.top):
            y = self.y(count)
            parts.append(f"<line class='axis' x1='{_LEFT}' x2='{right}' y1='{y:.1f}' y2='{y:.1f}' />")
            parts.append(f"<text x='{_LEFT - 6}' y='{y + 4:.1f}' text-anchor='end'>{count:,.0f}</text>")
        for at_s, name in time_ticks(self.end_s):
            x = self.x(at_s)
            parts.append(f"<line class='axis' x1='{x:.1f}' x2='{x:.1f}' y1='{base}' y2='{base + 4}' />")
            parts.append(f"<text x='{x:.1f}' y='{HEIGHT - 6}' text-anchor='middle'>{name}</text>")
        return parts


def drawing(arm: ArmRuns, frame: Frame) -> str:
    """Return the content of one plot.

    Each phase has its median over seeds, the band of the quartiles and that of all seeds, and at the end its
    sign, name and number.
    """
    at_s = arm.bands.at_s
    parts = frame.grid()
    for band in arm.bands.phases:
        colour = f"var(--{band.phase})"
        for low, high, strength in ((band.low, band.high, 0.15), (band.q25, band.q75, 0.25)):
            if low != high:
                shape = _steps(at_s, high, frame) + _steps(at_s, low, frame, is_back=True) + "Z"
                parts.append(f"<path d='{shape}' fill='{colour}' opacity='{strength}' />")
        dash = f" stroke-dasharray='{DASHES[band.phase]}'" if DASHES[band.phase] else ""
        line = _steps(at_s, band.median, frame)
        parts.append(f"<path d='{line}' fill='none' stroke='{colour}' stroke-width='2'{dash} />")
    return "".join([*parts, *_labels(arm.bands.phases, frame)])


def _steps(at_s: Sequence[float], counts: Sequence[float], frame: Frame, *, is_back: bool = False) -> str:
    """Return a line of steps: each count holds until the next. `is_back`: the same line from its end, to go on
    another."""
    points = [(frame.x(at_s[0]), frame.y(counts[0]))]
    for at, count in zip(at_s[1:], counts[1:], strict=True):
        x, y = frame.x(at), frame.y(count)
        if y != points[-1][1]:
            points += [(x, points[-1][1]), (x, y)]
    points.append((frame.x(at_s[-1]), points[-1][1]))
    if is_back:
        points.reverse()
    first = "L" if is_back else "M"
    return first + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _labels(bands: Sequence[Band], frame: Frame) -> list[str]:
    """Return the names at the ends of lines, none on another."""
    parts: list[str] = []
    free = float(HEIGHT)
    for band in sorted(bands, key=lambda band: band.median[-1]):
        last = band.median[-1]
        y = min(frame.y(last), free)
        free = y - _LABEL_PX
        x = WIDTH - _RIGHT + 6
        parts.append(
            f"<text x='{x}' y='{y + 4:.1f}'><tspan style='fill:var(--{band.phase})'>{SIGNS[band.phase]}</tspan> "
            f"{band.phase} {last:,.0f}</text>"
        )
    return parts
