"""A plugin of pytest: in place of dots, how many tests are over of how many, and how long is left.

On a terminal one line changes; elsewhere a line comes every half minute.
"""

from __future__ import annotations

import sys
import time

import pytest

from tests.layers import LONGEST, ROOT

EVERY_S = 30.0
ON_TERMINAL_S = 0.5

_RANKS = {ROOT / name: rank for rank, name in enumerate(LONGEST)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest first; all others stay as they are."""
    items.sort(key=lambda item: _RANKS.get(item.path, len(_RANKS)))


class Progress:
    """Counts what is over; lives where results arrive, which is the controller of several workers."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal, self._total, self._over, self._failed = terminal, 0, 0, 0
        self._began_s = self._shown_s = time.monotonic()
        self._is_terminal = sys.stdout.isatty()

    def collected(self, count: int) -> None:
        """Know how many tests there are."""
        self._total = max(self._total, count)
        self._began_s = time.monotonic()

    @pytest.hookimpl
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count what one process has collected."""
        self.collected(len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:
        """Count what a worker has collected: each collects all."""
        self.collected(len(ids))

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test that is over."""
        self._failed += report.failed
        if report.when != "teardown":
            return
        self._over += 1
        now_s = time.monotonic()
        if now_s - self._shown_s >= (ON_TERMINAL_S if self._is_terminal else EVERY_S):
            self._shown_s = now_s
            self._show(now_s)

    def _show(self, now_s: float) -> None:
        if self._over * 100 < self._total:  # too few to say anything of the rest
            return
        left_s = (now_s - self._began_s) / self._over * max(0, self._total - self._over)
        failed = f", {self._failed} failed" if self._failed else ""
        text = f"  {self._over:,} of {self._total:,} tests{failed}, about {left_s:.0f} s left"
        if self._is_terminal:
            self._terminal.write(f"\r\033[K{text}")
        else:
            self._terminal.write_line(text)


@pytest.hookimpl
def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Print nothing for a test that passed."""
    return ("passed", "", "PASSED") if report.passed and report.when == "call" else None


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Begin to count, where results arrive."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(terminal), "keplab-progress")
