"""`python docs/_sphinx/recording.py`: run some commands and draw docs/pictures/terminal.svg, which types them.

What stands in the picture is what the commands printed. It moves once and ends on the last command; where less motion
is preferred it stands still there. Colours follow the viewer's scheme.
"""

import os
import subprocess
import sys
from html import escape
from pathlib import Path

from lab.experiments.style import of_svg

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "pictures" / "terminal.svg"
COLUMNS, ROWS = 120, 28
COMMANDS = (
    "keplab run experiments/runaway/runaway-unbind.txt",
    "keplab trace 'pod/web-*' --run experiments/runaway/runaway-unbind.txt",
    (
        "keplab compare experiments/numa/half-free.txt --arm none:topology.policy=none \\\n"
        "  --arm single:topology.policy=single-numa-node"
    ),
)
CELL, LINE, PAD = 7.8, 17, 14
TYPED_S, PRINTED_S, READ_S = 0.03, 0.06, 4.0
"""A character that is typed, a line that is printed, the pause after a command."""
STYLE = of_svg("""\
  .back { stroke: var(--line) } text { fill: var(--ink); white-space: pre;
    font: 13px ui-monospace, "Cascadia Mono", "DejaVu Sans Mono", monospace }
  .prompt { fill: var(--running); font-weight: 600 } .good { fill: var(--running) }
  @keyframes come { from { visibility: hidden } to { visibility: visible } }
  @keyframes go { from { opacity: 1 } to { opacity: 0 } }
  .line { animation: come 1ms both } .scene { animation: go 1ms both }
  .scene:last-child { animation: none }
  @media (prefers-reduced-motion: reduce) {
    .line { animation: none } .scene { animation: none; opacity: 0 } .scene:last-child { opacity: 1 } }
""")


def printed(command: str) -> list[str]:
    """Return the lines that a command prints, cut to the terminal. Raises: CalledProcessError."""
    environ = os.environ | {"COLUMNS": str(COLUMNS), "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, env=environ, capture_output=True, text=True, check=True)
    return [line if len(line) <= COLUMNS else f"{line[: COLUMNS - 1]}…" for line in done.stdout.splitlines()]


def picture(scenes: list[tuple[str, list[str]]]) -> str:
    """Return the SVG of commands with what each printed; of each, as many lines as the terminal has."""
    width, height = COLUMNS * CELL + 2 * PAD, ROWS * LINE + 2 * PAD
    at_s, parts = 0.3, []
    for command, lines in scenes:
        typed = command.split("\n")
        shown = [*(("prompt" if i == 0 else "", text) for i, text in enumerate(typed)), *(("", line) for line in lines)]
        rows = []
        for i, (kind, text) in enumerate(shown[:ROWS]):
            rows.append(_row(i, kind, text, at_s))
            at_s += len(text) * TYPED_S if i < len(typed) else PRINTED_S
        at_s += READ_S
        parts.append(f'<g class="scene" style="animation-delay:{at_s:.2f}s">{"".join(rows)}</g>')
    label = escape("; ".join(command.replace("\\\n  ", "") for command, _ in scenes), quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img" '
        f'aria-label="A terminal: {label}"><style>{STYLE}</style>'
        f'<rect class="back" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1}" rx="8"/>'
        f"<g>{''.join(parts)}</g></svg>\n"
    )


def _row(place: int, kind: str, text: str, at_s: float) -> str:
    prompt = '<tspan class="prompt">$ </tspan>' if kind else ""
    good = ' class="good"' if text.startswith(("passed", "With ")) or "✓" in text[:4] else ""
    return (
        f'<text class="line" x="{PAD}" y="{PAD + 13 + place * LINE}" style="animation-delay:{at_s:.2f}s">{prompt}'
        f"<tspan{good}>{escape(text)}</tspan></text>"
    )


if __name__ == "__main__":
    PICTURE.write_text(picture([(command, printed(command)) for command in COMMANDS]))
    sys.stdout.write(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size / 1024:.0f} KiB\n")
