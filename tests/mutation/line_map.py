"""Which tests execute which line: recorded once per state of the product, kept below `runs/mutants/`.

The record is the product's: when a source file of the product changes, all tests run again; when a file of tests
changes, that file alone. Only tests that passed count. Tests of scenarios and of real processes are recorded
too, with what the processes execute that they start, and asked where nothing faster executes a line.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coverage import CoverageData

PRODUCT = ("apiserver_fake", "scheduler", "kubelet", "claim_controller", "services", "lab")
"""What may be changed."""
UNCHANGED = "lab/benchmarks"
"""What measures is judged by its figures."""
FOLDER = "RECORDED_LINES"
"""The variable that says where `tests.mutation.lines` writes."""
TEST = "RECORDED_TEST"
"""The variable that says to processes started by a test which test it is."""
FAST = ("tests/unit", "tests/component", "tests/fidelity", "tests/examples")
SLOW = ("tests/scenarios", "tests/process")


@dataclass(frozen=True)
class RecordedTest:
    """A test that passed: its id, how long it took, in how many files of the product it executes lines."""

    id: str
    seconds: float
    breadth: int

    @property
    def file(self) -> str:
        """The file the test stands in."""
        return self.id.partition("::")[0]

    @property
    def is_fast(self) -> bool:
        """Whether it is neither a scenario's nor one of real processes."""
        return self.id.startswith(FAST)


def product_files(root: Path) -> list[Path]:
    """Return the sources that may be changed: the product without generated code."""
    files = (path for top in PRODUCT for path in (root / top).rglob("*.py") if "_pb2" not in path.name)
    return sorted(path for path in files if not path.is_relative_to(root / UNCHANGED))


def hash_of(paths: Iterable[Path], root: Path) -> str:
    """Return one hash of files with their names."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


class LineMap:
    """What was recorded in `folder` about the tree below `root`; tests whose file has changed since are left out."""

    def __init__(self, folder: Path, root: Path) -> None:
        self._root = root
        self._data: list[CoverageData] = []
        self._files: dict[str, dict[int, list[RecordedTest]]] = {}
        self.tests: dict[str, RecordedTest] = {}
        self.failed: set[str] = set()
        self._read(folder)

    def _read(self, folder: Path) -> None:
        current: dict[str, str] = {}
        seconds: dict[str, float] = {}
        for record in sorted(folder.glob("tests.*.jsonl"), key=lambda path: path.stat().st_mtime):
            for line in record.read_text().splitlines():
                entry = json.loads(line)
                if "counts" in entry:
                    continue
                file = entry["test"].partition("::")[0]
                if file not in current:
                    current[file] = _hash_of_file(self._root / file)
                if entry["file"] != current[file]:
                    continue
                (self.failed.discard if entry["passed"] else self.failed.add)(entry["test"])
                seconds[entry["test"]] = entry["seconds"]
        breadths: dict[str, int] = {}
        import coverage  # listing mutants does without it

        for path in sorted(folder.glob("lines.*")):
            data = coverage.CoverageData(str(path))
            data.read()
            self._data.append(data)
            # The tables are documented: coverage, "Coverage.py database schema".
            query = "select context, count(*) from line_bits join context on context.id = context_id group by context"
            with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
                for context, count in database.execute(query):
                    breadths[context] = max(count, breadths.get(context, 0))
        for test, spent in seconds.items():
            if test not in self.failed and test in breadths:
                self.tests[test] = RecordedTest(test, spent, breadths[test])

    def of_file(self, file: str) -> dict[int, list[RecordedTest]]:
        """Return, for each line of a product's file that tests execute, the tests."""
        if file not in self._files:
            lines: dict[int, list[RecordedTest]] = {}
            for data in self._data:
                measured = next((name for name in data.measured_files() if name.endswith(f"/{file}")), None)
                for line, contexts in data.contexts_by_lineno(measured).items() if measured else ():
                    found = [self.tests[context] for context in contexts if context in self.tests]
                    if found:
                        lines.setdefault(line, []).extend(found)
            self._files[file] = lines
        return self._files[file]

    def covering(self, file: str, line: int) -> list[RecordedTest]:
        """Return the tests that execute a line, each once."""
        return list(dict.fromkeys(self.of_file(file).get(line, ())))

    def touching(self, file: str) -> list[RecordedTest]:
        """Return the tests that execute any line of a file within a function."""
        return list(dict.fromkeys(test for tests in self.of_file(file).values() for test in tests))

    def using(self, names: Sequence[str]) -> list[RecordedTest]:
        """Return the tests that execute a line, anywhere in the product, that says one of these names."""
        words = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
        found: dict[RecordedTest, None] = {}
        for file, lines in self._sources.items():
            for number, text in enumerate(lines, 1):
                if words.search(text):
                    found.update(dict.fromkeys(self.covering(file, number)))
        return list(found)

    @cached_property
    def _sources(self) -> dict[str, list[str]]:
        return {str(path.relative_to(self._root)): path.read_text().splitlines() for path in product_files(self._root)}


def _hash_of_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.exists() else ""


def record(tree: Path, folder: Path, root: Path, *, workers: int, layers: Sequence[str]) -> int:
    """Run the tests that are not yet recorded in `folder`, in a copy of the tree, and return of how many files.

    It takes two to three times what the tests take without. What was recorded before an interruption is kept, by files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for is_fast in (True, False):
        tops = [top for top in layers if top.startswith(FAST) == is_fast]
        files = sorted(path for top in tops for path in (root / top).rglob("test_*.py"))
        known = recorded(folder)
        files = [path for path in files if known.get(str(path.relative_to(root))) != _hash_of_file(path)]
        if not files:
            continue
        count += len(files)
        names = [str(path.relative_to(root)) for path in files]
        command = [sys.executable, "-m", "pytest", "--slow", "-p", "no:cacheprovider", "-p", "tests.mutation.lines"]
        command += ["--timeout", "900", "-n", str(workers), "--dist", "loadfile" if is_fast else "load"]
        paths = os.pathsep.join(
            [str(tree), str(tree / "tests/mutation/children"), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
        environment = os.environ | {FOLDER: str(folder), "PYTHONPATH": paths}
        subprocess.run([*command, "-q", "--tb=no", *names], cwd=tree, env=environment, check=False)
    return count


def recorded(folder: Path) -> dict[str, str]:
    """Return the files of tests of which every test is recorded, with the hashes they had."""
    counts: dict[str, int] = {}
    seen: dict[tuple[str, str], set[str]] = {}
    for path in folder.glob("tests.*.jsonl"):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if "counts" in entry:
                counts.update(entry["counts"])
            else:
                seen.setdefault((entry["test"].partition("::")[0], entry["file"]), set()).add(entry["test"])
    return {file: state for (file, state), tests in seen.items() if len(tests) >= counts.get(file, 0)}
