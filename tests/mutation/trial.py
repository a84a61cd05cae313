"""One mutant on trial: the tests that execute its line run against a copy of the tree that has the change.

The copy is a directory of its own for each worker; the working tree is never touched. Tests run in the order in which
they are likely to notice, and the first failure ends the trial.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.mutation.chosen import CHOSEN
from tests.mutation.line_map import LineMap, RecordedTest
from tests.mutation.operators import Change

LEFT_OUT = {".git", ".venv", ".keplab", "runs", "build"}
"""What lies at the top of a tree and is no part of it; a folder deeper down may bear such a name (`lab/runs`)."""
FIRST_TESTS, FIRST_FILES, FIRST_S = 40, 8, 10.0
"""The first round: the tests that say most about the line."""
ROUND_S = 60.0
"""Seconds of tests, as they took unchanged, that all rounds after the first may have together."""
SLOWER = 12.0
"""A changed test may take so many times longer before it is taken for an endless loop."""
START_S = 60.0
SURE_S = 1.0
"""A test that took longer, and failed with a change, runs once more without."""
MEMORY_MAX = 8 << 30
Outcome = Literal["killed", "timeout", "survived", "not covered"]


@dataclass(frozen=True)
class Trial:
    """What became of a mutant. `by`: the test that noticed; `tests`: how many ran at most; `seconds`: wall time."""

    outcome: Outcome
    by: str
    tests: int
    seconds: float

    @property
    def is_killed(self) -> bool:
        """Whether the tests noticed."""
        return self.outcome in ("killed", "timeout")


class Copy:
    """A copy of the tree, in which one file at a time is changed."""

    def __init__(self, root: Path, place: Path) -> None:
        self.place = place
        self._stamp = time.time()
        shutil.copytree(root, place, symlinks=True, ignore=lambda at, _: LEFT_OUT if Path(at) == root else ())
        self.log = place.parent / f"{place.name}.log"

    def write(self, file: str, content: bytes) -> None:
        """Change a file, so that no byte code of it is taken for current."""
        path = self.place / file
        path.write_bytes(content)
        self._stamp += 2
        os.utime(path, (self._stamp, self._stamp))
        for cached in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            cached.unlink()

    def run(self, tests: Sequence[RecordedTest], running: set[int]) -> tuple[int, str]:
        """Run tests until one fails. Return pytest's exit code (-1: the time was over) and the test that failed."""
        chosen = self.place.parent / f"{self.place.name}.json"
        chosen.write_text(json.dumps([test.id for test in tests]))
        files = list(dict.fromkeys(test.file for test in tests))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider"]
        command += ["-p", "tests.mutation.chosen", "-p", "no:xdist", *files]
        expected_s = sum(test.seconds for test in tests)
        paths = os.pathsep.join([str(self.place), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = os.environ | {"PYTHONPATH": paths, CHOSEN: str(chosen)}
        with self.log.open("w") as log:
            process = subprocess.Popen(
                command,
                cwd=self.place,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: _limit(START_S + SLOWER * expected_s),
            )
            running.add(process.pid)
            try:
                code = process.wait(timeout=5 * START_S + 2 * SLOWER * expected_s)
            except subprocess.TimeoutExpired:
                code = -1
            finally:
                end(process.pid)
                process.wait()
                running.discard(process.pid)
        return code, _failed(self.log.read_text(errors="replace"))


def end(pid: int) -> None:
    """End a process that was started here, with all it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _limit(cpu_s: float) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s) + 1, int(cpu_s) + 6))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))


def _failed(output: str) -> str:
    for line in output.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.split(" ", 1)[1].partition(" - ")[0]
    return ""


def rounds(change: Change, lines: LineMap) -> list[list[RecordedTest]]:
    """Return the tests to try, first those that say most: of few files, cheap.

    A line of a function has the tests that execute it; what is executed while modules are imported (tables, constants,
    defaults) has those of the lines that use its name. Then come tests that execute anything of the file, which a cache
    may have kept from executing the line, and last those of scenarios and processes, first where nothing is faster.
    """
    covering = lines.covering(change.file, change.line)
    if not covering and change.first_line:
        covering = lines.covering(change.file, change.first_line)
    if not covering and change.names:
        covering = lines.using(change.names)
    fast = [test for test in covering if test.is_fast]
    near = set(lines.touching(change.file))
    ranked = sorted(fast or covering, key=lambda t: (t not in near, t.breadth * (1 + 5 * t.seconds), t.id))
    first = _first(ranked)
    rest = [test for test in ranked if test not in set(first)]
    others = sorted(near - set(covering), key=lambda t: (not t.is_fast, t.breadth * (1 + 5 * t.seconds), t.id))
    second = _within(rest, ROUND_S)
    left_s = ROUND_S / 2 if not rest else max(0.0, ROUND_S / 2 - sum(test.seconds for test in second))
    slow = sorted((test for test in covering if fast and not test.is_fast), key=lambda t: (t.seconds, t.id))
    return [each for each in (first, second, _within(others, left_s), _within(slow, ROUND_S / 2)) if each]


def _first(ranked: Sequence[RecordedTest]) -> list[RecordedTest]:
    found: list[RecordedTest] = []
    files: set[str] = set()
    for test in ranked:
        if test.file in files or len(files) < FIRST_FILES:
            files.add(test.file)
            found.append(test)
        if len(found) >= FIRST_TESTS or sum(each.seconds for each in found) > FIRST_S:
            break
    return found


def _within(tests: Iterable[RecordedTest], seconds: float) -> list[RecordedTest]:
    found: list[RecordedTest] = []
    for test in tests:
        if test.seconds <= seconds:
            found.append(test)
            seconds -= test.seconds
    return found


def try_out(change: Change, source: bytes, copy: Copy, lines: LineMap, running: set[int]) -> Trial:
    """Put one mutant on trial. Raises: RuntimeError when no test can be run, even without the change."""
    begun = time.perf_counter()
    plan = rounds(change, lines)
    if not plan:
        return Trial("not covered", "", 0, 0.0)
    count = 0
    for tests in plan:
        count += len(tests)
        code, failed = _run_changed(change, source, copy, tests, running)
        while code != 0 and not _is_sure(code, failed, tests):
            again = [test for test in tests if test.id == failed]
            unchanged, name = copy.run(again or tests, running)
            if unchanged == 0:
                break
            if not again:
                raise RuntimeError(f"{name or tests[0].file} fails without the change, too: see {copy.log}")
            tests = [test for test in tests if test.id != failed]  # it says nothing here and now
            code, failed = _run_changed(change, source, copy, tests, running) if tests else (0, "")
        if code != 0:
            outcome: Outcome = "killed" if 0 < code < 128 else "timeout"
            return Trial(outcome, failed, count, round(time.perf_counter() - begun, 1))
    return Trial("survived", "", count, round(time.perf_counter() - begun, 1))


def _run_changed(
    change: Change, source: bytes, copy: Copy, tests: Sequence[RecordedTest], running: set[int]
) -> tuple[int, str]:
    copy.write(change.file, change.apply(source))
    try:
        return copy.run(tests, running)
    finally:
        copy.write(change.file, source)


def _is_sure(code: int, failed: str, tests: Sequence[RecordedTest]) -> bool:
    """Say whether a failure is the change's beyond doubt: of a quick test, which a busy machine does not make fail."""
    return code == 1 and any(test.id == failed and test.seconds < SURE_S for test in tests)
