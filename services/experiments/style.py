"""What all pages and pictures share: the palette, the style sheet, the head of a page. Pure.

The hues are Okabe and Ito's, two of them darkened, so that they stay apart for readers who do not see red or green.
Graphics have a contrast of 3:1 or more to their ground, texts 4.5:1; colour never stands alone, a sign or a dash says
the same."""

from html import escape
from typing import Final, NamedTuple


class Colour(NamedTuple):
    """One colour on light paper and on dark."""

    light: str
    dark: str


PAPER: Final = Colour("#fbfaf7", "#16191d")
TEXTS: Final = {"ink": Colour("#1c2430", "#e7e5df"), "soft": Colour("#5f6672", "#9aa0a8")}
"""What is read: 4.5:1."""
GRAPHICS: Final = {
    "pending": Colour("#a86500", "#e69f00"),
    "running": Colour("#0072b2", "#56b4e9"),
    "failed": Colour("#d55e00", "#d55e00"),
    "succeeded": Colour("#6b7280", "#9aa0a8"),
    "unbound": Colour("#a3497d", "#cc79a7"),
}
"""What is seen: 3:1."""
COMPONENTS: Final = {
    "apiserver": Colour("#0072b2", "#56b4e9"),
    "scheduler": Colour("#a86500", "#e69f00"),
    "kubelet": Colour("#00795a", "#009e73"),
    "controllers": Colour("#a3497d", "#cc79a7"),
    "claim-controller": Colour("#d55e00", "#d55e00"),
    "other": Colour("#6b7280", "#9aa0a8"),
}
"""The same, of who does something."""
LINE: Final = Colour("#d8d4c8", "#3a3f46")
"""Rules between rows and behind plots: nothing is lost without them."""


def variables(*, is_dark: bool) -> str:
    """Return the palette as CSS variables."""
    colours = {"paper": PAPER, "line": LINE, **TEXTS, **GRAPHICS, **COMPONENTS}
    return " ".join(f"--{name}: {colour.dark if is_dark else colour.light};" for name, colour in colours.items())


def of_svg(more: str = "") -> str:
    """Return the style of an SVG that stands by itself and follows the scheme that its viewer prefers. `more`: rules of
    this picture alone."""
    return (
        f"svg {{ {variables(is_dark=False)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ svg {{ {variables(is_dark=True)} }} }}\n"
        "text { font: 11px system-ui, sans-serif; fill: var(--soft); } .back { fill: var(--paper); }\n"
        f".axis {{ stroke: var(--line); }} .name, .head {{ fill: var(--ink); }} .head {{ font-weight: 600; }}\n{more}"
    )


def colour_of(component: str) -> str:
    """Return the colour of a component, by its service's name, as CSS."""
    return f"var(--{component if component in COMPONENTS else 'other'})"


STYLE: Final = f"""
:root {{ color-scheme: light dark; {variables(is_dark=False)} }}
@media (prefers-color-scheme: dark) {{ @media screen {{ :root {{ {variables(is_dark=True)} }} }} }}
body {{ font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 76rem; padding: 0 1.25rem; }}
h1 {{ font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem; }}
h2 {{ font-size: 1.1rem; margin: 1.75rem 0 .5rem; break-after: avoid; }}
p.about {{ color: var(--soft); max-width: 60rem; white-space: pre-line; margin-top: 0; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .35rem .9rem .35rem 0; border-bottom: 1px solid var(--line); text-align: right;
  vertical-align: top; }}
th {{ font-weight: 600; }} th:first-child, td:first-child {{ text-align: left; }}
td.text, th.text {{ text-align: left; }}
.plots {{ display: flex; flex-wrap: wrap; gap: 1.25rem; }} figure {{ margin: 0; break-inside: avoid; }}
figcaption {{ font-weight: 600; }} figcaption small {{ font-weight: 400; color: var(--soft); }}
svg {{ max-width: 100%; height: auto; }}
svg text {{ fill: var(--soft); font: 11px system-ui, sans-serif; }} svg .axis {{ stroke: var(--line); }}
.bad {{ font-weight: 600; }} .bad::before {{ content: "✕ "; color: var(--failed); }}
.good::before {{ content: "✓ "; color: var(--running); }} code {{ font-size: .9em; }}
.scroll {{ overflow-x: auto; }}
"""


def head(title: str, about: str, more: str = "") -> str:
    """Return the beginning of a self-contained page, down to its heading; no script, nothing fetched. `more`: style
    of this page alone."""
    return "\n".join(
        [
            "<!doctype html><html lang=en><meta charset=utf-8>",
            "<meta name=viewport content='width=device-width, initial-scale=1'>",
            f"<title>{escape(title)}</title><style>{STYLE}{more}</style>",
            f"<h1>{escape(title)}</h1>",
            *([f"<p class=about>{escape(about)}</p>"] if about else []),
        ]
    )
