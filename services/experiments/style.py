"""What all pages and pictures share: the style, the head of a page, round numbers for an axis. Pure."""

from html import escape

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --paper: #fbfaf7; --line: #d8d4c8; --soft: #6b7280; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7e5df; --paper: #16191d; --line: #3a3f46; --soft: #9aa0a8; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 76rem; padding: 0 1.25rem; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p.about { color: var(--soft); max-width: 60rem; white-space: pre-line; margin-top: 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .9rem .35rem 0; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; } td.text, th.text { text-align: left; }
.plots { display: flex; flex-wrap: wrap; gap: 1.5rem; } figure { margin: 0; }
figcaption { font-weight: 600; } figcaption small { font-weight: 400; color: var(--soft); }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; } svg .axis { stroke: var(--line); }
.bad { color: #b3382c; font-weight: 600; } .good { color: #2f7d4f; } code { font-size: .9em; }
.scroll { overflow-x: auto; }
"""


def head(title: str, about: str) -> str:
    """Return the beginning of a self-contained page, down to its heading; no script, nothing fetched."""
    return "\n".join(
        [
            "<!doctype html><html lang=en><meta charset=utf-8>",
            "<meta name=viewport content='width=device-width, initial-scale=1'>",
            f"<title>{escape(title)}</title><style>{STYLE}</style>",
            f"<h1>{escape(title)}</h1><p class=about>{escape(about)}</p>",
        ]
    )


def ticks(top: float) -> list[float]:
    """Return two to five round numbers from 0 up to `top`; steps are whole."""
    step = 10 ** max(0, len(str(int(top))) - 1)
    while top / step > 5:
        step *= 2
    while top / step < 2 and step > 1:
        step //= 2
    return [float(i * step) for i in range(int(top / step) + 1)]
