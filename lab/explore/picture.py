"""The sequence diagram as a self-contained SVG. Pure.

Rows are steps, not time: steps within a millisecond are as legible as those within a second. A held message
falls, dashed, from where it was sent to where it arrived; every message that it crosses has overtaken it.
"""

from collections.abc import Sequence
from html import escape

from lab.experiments.style import colour_of, of_svg
from lab.explore.deliveries import display_name
from lab.explore.diagram import ARRIVED, BROKE, MESSAGE, SENT, Step, hold_text, participants
from services.runtime.components import component_of

_LEFT, _COLUMN, _TOP, _ROW, _RIGHT = 100, 240, 84, 26, 190
_STYLE = of_svg(
    ".head { font-size: 14px; } .who { font-size: 12px; } .who, .late { font-weight: 600; fill: var(--ink); }\n"
    ".way { stroke: var(--other); fill: none; } .held { stroke: var(--failed); fill: none; stroke-width: 1.8; "
    "stroke-dasharray: 6 3; }\n.halo { stroke: var(--paper); stroke-width: 4; }\n"
)
_TIP = (
    "<marker id='tip' viewBox='0 0 8 8' refX='7.5' refY='4' markerWidth='8' markerHeight='8' orient='auto'>"
    "<path d='M0 0.5 L8 4 L0 7.5 z' fill='context-stroke' /></marker>"
)


def svg_diagram(steps: Sequence[Step], title: str, about: str = "") -> str:
    """Return the diagram as one SVG document."""
    names = participants(steps)
    x_of = {name: _LEFT + 60 + _COLUMN * place for place, name in enumerate(names)}
    width = max(_LEFT + _COLUMN * max(1, len(names)) + _RIGHT - 80, 640)
    height = _TOP + _ROW * len(steps) + 24
    parts = [
        (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}' "
            f"role='img' aria-label='{escape(title, quote=True)}'>"
        ),
        f"<style>{_STYLE}</style><defs>{_TIP}</defs>",
        f"<rect class='back' width='{width}' height='{height}' rx='10' />",
        f"<text class='head' x='16' y='24'>{escape(title)}</text><text x='16' y='42'>{escape(about)}</text>",
    ]
    for name, x in x_of.items():
        parts.append(f"<line class='axis' x1='{x}' x2='{x}' y1='{_TOP - 8}' y2='{height - 14}' />")
        parts.append(
            f"<rect x='{x - 30}' y='{_TOP - 11}' width='60' height='3' rx='1.5' style='fill:{_colour(name)}' />"
            f"<text class='who' x='{x}' y='{_TOP - 16}' text-anchor='middle'>{escape(display_name(name))}</text>"
        )
    lines, words = _rows(steps, x_of)
    return "\n".join([*parts, *lines, *words, "</svg>", ""])


def _rows(steps: Sequence[Step], x_of: dict[str, int]) -> tuple[list[str], list[str]]:
    """Return all lines and all words, apart, so that no line is drawn over words."""
    sent: dict[tuple[str, str, str], int] = {}
    lines: list[str] = []
    words: list[str] = []
    for number, step in enumerate(steps):
        y = _TOP + _ROW * number + 10
        words.append(f"<text x='{_LEFT - 14}' y='{y + 4}' text-anchor='end'>{step.at_s:.4f} s</text>")
        drawn, label = _row(step, y, x_of, sent)
        lines += filter(None, (drawn,))
        words.append(label)
    return lines, words


def _colour(name: str) -> str:
    return colour_of(component_of(name))


def _row(step: Step, y: int, x_of: dict[str, int], sent: dict[tuple[str, str, str], int]) -> tuple[str, str]:
    key = (step.source, step.target, step.text)
    x = x_of.get(step.source, _LEFT)
    to = x_of.get(step.target, x)
    if step.kind == SENT:
        sent[key] = y
        side, anchor = (-8, "end") if to > x else (8, "start")
        return _dot(x, y, "var(--failed)"), _words(x + side, y + 4, f"sends {step.text}", "late", anchor)
    if step.kind == ARRIVED:
        # Beyond the tip, where its own line does not cross the words.
        side, anchor = (8, "start") if to > x else (-8, "end")
        words = f"{step.text}, held {hold_text(step.held_s)}"
        return _arrow("held", x, sent.get(key, y), to, y), _words(to + side, y + 4, words, "late", anchor)
    if step.kind == MESSAGE:
        return _arrow("way", x, y, to, y), _words((x + to) / 2, y - 4, step.text, "", "middle")
    if step.kind == BROKE:
        return "", _words(_LEFT, y + 4, f"✗ {step.text}", "late", "start")
    return _dot(x, y, _colour(step.source)), _words(x + 8, y + 4, step.text, "name", "start")


def _arrow(style: str, x1: int, y1: int, x2: int, y2: int) -> str:
    return f"<line class='{style}' x1='{x1}' y1='{y1}' x2='{x2}' y2='{y2}' marker-end='url(#tip)' />"


def _dot(x: int, y: int, colour: str) -> str:
    return f"<circle cx='{x}' cy='{y}' r='3.5' style='fill:{colour}' />"


def _words(x: float, y: float, words: str, style: str, anchor: str) -> str:
    shown = escape(words)
    return (
        f"<text class='halo' x='{x:.0f}' y='{y}' text-anchor='{anchor}' aria-hidden='true'>{shown}</text>"
        f"<text class='{style}' x='{x:.0f}' y='{y}' text-anchor='{anchor}'>{shown}</text>"
    )
