"""A comparison as one self-contained picture: the arms side by side on one scale. Pure."""

from html import escape

from lab.experiments.document import Comparison
from lab.experiments.plots import HEIGHT, WIDTH, Frame, drawing
from lab.experiments.style import variables

_COLUMNS, _GAP, _HEAD, _NAME = 2, 20, 44, 26


def picture(comparison: Comparison, *, is_dark: bool = False) -> str:
    """Return an SVG document, for a light or dark background."""
    frame = Frame(comparison.arms)
    columns = min(_COLUMNS, max(1, len(comparison.arms)))
    rows = -(-len(comparison.arms) // columns)
    width, cell = _GAP + columns * (WIDTH + _GAP), HEIGHT + _NAME
    height = _HEAD + rows * cell + 30
    # The palette stands in the document itself, which has no page around it.
    style = (
        f"svg {{ {variables(is_dark=is_dark)} }} text {{ fill: var(--soft); font: 11px system-ui, sans-serif; }} "
        ".title { fill: var(--ink); font-size: 15px; font-weight: 600; } .name { fill: var(--ink); font-size: 13px; "
        "font-weight: 600; } .small { font-weight: 400; fill: var(--soft); } .axis { stroke: var(--line); }"
    )
    parts = [
        (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}' "
            f"role='img' aria-label='{escape(comparison.result, quote=True)}'>"
        ),
        f"<style>{style}</style><rect width='{width}' height='{height}' rx='10' style='fill:var(--paper)' />",
        f"<text x='{_GAP}' y='28' class='title'>{escape(comparison.title or comparison.scenario)}</text>",
    ]
    for number, arm in enumerate(comparison.arms):
        x, y = _GAP + number % columns * (WIDTH + _GAP), _HEAD + number // columns * cell
        switches = escape(", ".join(arm.switches))
        name = f"{escape(arm.name)} <tspan class='small'>{switches}</tspan>"
        parts.append(f"<g transform='translate({x},{y})'><text y='14' class='name'>{name}</text>")
        parts.append(f"<g transform='translate(0,{_NAME - 6})'>{drawing(arm, frame)}</g></g>")
    parts.append(f"<text x='{_GAP}' y='{height - 12}'>{escape(_source(comparison))}</text></svg>\n")
    return "\n".join(parts)


def _source(made: Comparison) -> str:
    seeds = "1 seed" if len(made.seeds) == 1 else f"median and range over {len(made.seeds)} seeds"
    mode = "simulated" if made.is_simulated else made.mode_text.removesuffix(" over gRPC")
    return f"Pods by phase; {mode}, {seeds}; {made.provenance.scenario_path}"
