"""Pytest plugin: record which test executes which line of the product (`-p tests.mutation.lines`).

Each process that runs tests writes two files into the folder named by `RECORDED_LINES`: coverage data whose contexts are
test ids, and a line of JSON per test with its outcome, its seconds and the hash of the file it stands in, after one with
the number of tests in each file. Lines that run
while modules are imported have no test: their context is empty.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.mutation.line_map import FOLDER, TEST
from tests.mutation.recording import start


class Recorder:
    """One process' tests: their lines, outcomes and seconds."""

    def __init__(self, folder: Path, root: Path) -> None:
        name = os.environ.get("PYTEST_XDIST_WORKER", "main")
        self._root = root
        self._outcomes: IO[str] = (folder / f"tests.{name}.{os.getpid()}.jsonl").open("w")
        self._hashes: dict[str, str] = {}
        self._failed = False
        self._seconds = 0.0
        self._lines = start(folder, root=root, name=name)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        counts = Counter(item.nodeid.partition("::")[0] for item in session.items)
        self._outcomes.write(json.dumps({"counts": counts}) + "\n")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._failed, self._seconds = False, 0.0
        os.environ[TEST] = item.nodeid
        self._lines.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._lines.switch_context("")
            file = item.nodeid.partition("::")[0]
            if file not in self._hashes:
                self._hashes[file] = hashlib.sha256((self._root / file).read_bytes()).hexdigest()[:16]
            entry = {
                "test": item.nodeid,
                "file": self._hashes[file],
                "passed": not self._failed,
                "seconds": round(self._seconds, 4),
            }
            self._outcomes.write(json.dumps(entry) + "\n")
            self._outcomes.flush()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= not report.passed
        self._seconds += report.duration

    def pytest_unconfigure(self) -> None:
        self._lines.stop()
        self._lines.save()
        self._outcomes.close()


def pytest_configure(config: pytest.Config) -> None:
    """Record in processes that run tests: xdist's workers, or the one process there is."""
    is_controller = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if not is_controller:
        config.pluginmanager.register(Recorder(Path(os.environ[FOLDER]), config.rootpath), "keplab-lines")
