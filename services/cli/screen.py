"""What all commands show the same way: JSON documents, tables, a live view of pods, one-line errors.

On a terminal: colour, tables and a live view. Piped: plain lines, no control characters.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import click
import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table

from services.api.meta import Document
from services.scenarios.observer import Observer

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NO_START = 3
EXIT_INTERRUPTED = 130

console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
errors = Console(stderr=True, highlight=False, soft_wrap=True)

OUTPUT = click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="text or json")


def fail(message: str, code: int = EXIT_USAGE) -> NoReturn:
    """Print one line to standard error and end."""
    errors.print(f"keplab: {message}", style="red" if errors.is_terminal else None, markup=False)
    raise SystemExit(code)


def print_json(document: Any) -> None:
    """Print one JSON document."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "", left: int = 1) -> None:
    """Print a table: ruled on a terminal, tab-separated lines otherwise. The first `left` columns are texts."""
    if not console.is_terminal:
        # Not by the console, which would make spaces of the tabs.
        for row in (columns, *rows):
            sys.stdout.write("\t".join(row) + "\n")
        return
    table = Table(title=title or None, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < left else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)


class PodsView:
    """A live view of a run: pods by phase and by node, failed pods a minute, the line being told."""

    def __init__(self, title: str, *, quiet: bool = False) -> None:
        self._title = title
        self._live = Live(console=console, refresh_per_second=8, transient=True) if console.is_terminal else None
        self._quiet = quiet
        self._shown_at = 0.0
        self._last: Observer | None = None

    def __enter__(self) -> PodsView:
        if self._live is not None and not self._quiet:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None and not self._quiet:
            self._live.stop()

    def progress(self, observer: Observer, line: str) -> None:
        """Show the state; called as often as the teller likes."""
        now = time.perf_counter()
        interval = 0.12 if self._live is not None else 5.0
        if self._quiet or now - self._shown_at < interval:
            return
        self._shown_at = now
        if self._live is not None:
            self._live.update(self._table(observer, line))
        else:
            s = observer.history.samples[-1]
            console.print(
                f"{self._title}\t{s.at_s:.1f} s\tpending {s.pending}\trunning {s.running}\tfailed {s.failed}",
                markup=False,
            )

    def _table(self, observer: Observer, line: str) -> Table:
        samples = observer.history.samples
        last = samples[-1]
        minute_ago = next((s for s in samples if s.at_s >= last.at_s - 60.0), last)
        span = max(last.at_s - minute_ago.at_s, 1e-9)
        rate = 60.0 * (last.failed_total - minute_ago.failed_total) / span if span > 1.0 else 0.0
        table = Table(title=f"{self._title}   {last.at_s:6.1f} s   {line[:70]}", title_justify="left")
        for column in ("node", "Pending", "Running", "Failed", "unbound from here"):
            table.add_column(column, justify="left" if column == "node" else "right")
        nodes: dict[str, list[int]] = {}
        for pod in observer.history.pods.values():
            for node in pod.nodes[: pod.unbinds]:
                nodes.setdefault(node, [0, 0, 0, 0])[3] += 1
            if pod.gone_s is None:
                row = nodes.setdefault(pod.nodes[-1] if len(pod.nodes) > pod.unbinds else "(none)", [0, 0, 0, 0])
                row[{"Running": 1, "Failed": 2}.get(pod.phase, 0)] += 1
        for node, counts in sorted(nodes.items())[:20]:
            table.add_row(node, *(str(c) if c else "·" for c in counts))
        table.add_section()
        table.add_row("all", str(last.pending), str(last.running), f"{last.failed}  ({rate:.0f}/min)", "")
        return table


def switch_overrides(assignments: Sequence[str]) -> dict[str, Any]:
    """Return the values of `--set` options, or end with a usage error."""
    from services.api.switches import SwitchError, Switches

    try:
        switches = Switches.parse(assignments)
    except SwitchError as error:
        fail(str(error))
    return {text.partition("=")[0]: switches[text.partition("=")[0]] for text in switches.assignments}


def flat(document: Document) -> list[tuple[str, str]]:
    """Return the top-level scalars of a document as rows."""
    return [(key, str(value)) for key, value in document.items() if not isinstance(value, dict | list)]
