"""A live view of a run on a terminal; plain lines every few seconds when piped."""

from __future__ import annotations

import sys
import time
from typing import Any

from rich.box import HEAVY_HEAD
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from lab.scenarios.observer import Observer

NARROW = 60
"""Width in columns below which the live view has no frame and short headings."""


class _Console(Console):
    def print(self, *objects: Any, **how: Any) -> None:
        """Print, wrapped between words; a name that is wider than the terminal stays whole."""
        super().print(*objects, **{"overflow": "ignore", "crop": False, **how})

    def on_broken_pipe(self) -> None:
        """Let the command line find the exit code; rich itself would end with that of a failed expectation."""
        self.quiet = True
        raise


console = _Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def progress_bar(first: str, *last: str, quiet: bool, is_transient: bool = False) -> Progress:
    """Return a progress bar with texts before and after it; it shows on a terminal only."""
    columns = (TextColumn(first), BarColumn(), MofNCompleteColumn(), *map(TextColumn, last), TimeRemainingColumn())
    is_hidden = quiet or not console.is_terminal
    return Progress(*columns, console=console, transient=is_transient, disable=is_hidden)


class PodsView:
    """A live view of a run: pods by phase and by node, failed pods per minute, and the line being run."""

    def __init__(self, title: str, *, quiet: bool = False) -> None:
        self._title = title
        self._live = Live(console=console, refresh_per_second=8, transient=True) if console.is_terminal else None
        self._quiet = quiet
        self._shown_at = 0.0

    def __enter__(self) -> PodsView:
        if self._live is not None and not self._quiet:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None and not self._quiet:
            self._live.stop()

    def progress(self, observer: Observer, line: str) -> None:
        """Show the current state; the runner may call it as often as it likes."""
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
        is_narrow = console.width < NARROW
        line_width = max(console.width - len(self._title) - 14, 0)
        table = Table(
            title=f"{self._title}   {last.at_s:6.1f} s   {line[: min(line_width, 70)]}",
            title_justify="left",
            title_style="",
            padding=(0, 1, 0, 0) if is_narrow else (0, 1),
            box=None if is_narrow else HEAVY_HEAD,
        )
        for column in ("node", "Pending", "Running", "Failed", "unbound" if is_narrow else "unbound from here"):
            table.add_column(column, justify="left" if column == "node" else "right", no_wrap=True)
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
        table.add_row(
            "all",
            str(last.pending),
            str(last.running),
            str(last.failed) + ("" if is_narrow else f"  ({rate:.0f}/min)"),
            "",
        )
        return table
