"""`python -m tests.mutation`: change the product in one place at a time, and see whether the tests notice (`make mutants`)."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import click

from tests.mutation.equivalent import Declared, declared_changes
from tests.mutation.line_map import FAST, SLOW, LineMap, hash_of, product_files, record
from tests.mutation.operators import Change, changes, compiles
from tests.mutation.trial import Copy, Trial, end, try_out

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FOLDER = ROOT / "runs" / "mutants"
AIM_PERCENT = 90.0
LEAST_SHARE = 0.05
"""Of the mutants drawn, the least that each component gets."""


def component_of(file: str) -> str:
    """Return the component a file is part of."""
    return file.partition("/")[0]


def draw(count: int, seed: int, only: str = "") -> list[Change]:
    """Draw mutants: a line of each component, as it has lines, then one of the changes that are possible in it.

    Equal trees and seeds give equal mutants. `only`: draw from files whose path begins so.
    """
    files: dict[str, list[Path]] = {}
    for path in product_files(ROOT):
        name = str(path.relative_to(ROOT))
        if name.startswith(only):
            files.setdefault(component_of(name), []).append(path)
    found: list[Change] = []
    sizes = {name: sum(path.stat().st_size for path in paths) for name, paths in files.items()}
    for name, number in shares(sizes, count).items():
        found += _draw_from(files[name], number, random.Random(f"{seed} {name}"))
    random.Random(seed).shuffle(found)  # what is there after Ctrl-C is a sample, too
    return found


def shares(sizes: dict[str, int], count: int) -> dict[str, int]:
    """Deal `count` out by size; each gets a twentieth at least."""
    least = max(1, int(count * LEAST_SHARE)) if len(sizes) > 1 else count
    rest = count - least * len(sizes)
    total = sum(sizes.values())
    dealt = {name: least + int(max(0, rest) * size / total) for name, size in sizes.items()}
    largest = max(sizes, key=lambda name: sizes[name])
    dealt[largest] += max(0, count - sum(dealt.values()))
    return dealt


def _draw_from(paths: Sequence[Path], number: int, chance: random.Random) -> list[Change]:
    # A file is drawn by its size, then a line that may be changed: nearly the same as a line of all, and only few files
    # need to be read.
    sizes = [path.stat().st_size for path in paths]
    found: list[Change] = []
    seen: set[tuple[str, int]] = set()
    known: dict[Path, dict[int, list[Change]]] = {}
    for _ in range(200 * number):
        if len(found) == number:
            break
        path = chance.choices(paths, sizes)[0]
        if path not in known:
            lines = known[path] = {}
            for change in changes(str(path.relative_to(ROOT)), path.read_bytes()):
                lines.setdefault(change.line, []).append(change)
        if not known[path]:
            continue
        line = chance.choice(sorted(known[path]))
        operators = sorted({change.operator for change in known[path][line]})
        operator = chance.choice(operators)
        change = chance.choice([each for each in known[path][line] if each.operator == operator])
        if (change.file, line) not in seen and compiles(change, path.read_bytes()):
            seen.add((change.file, line))
            found.append(change)
    return found


@dataclass(frozen=True)
class Entry:
    """A line of the record: a mutant, the state of its file and of the tests when it was tried, what became of it."""

    mutant: str
    file: str
    tests: str
    trial: Trial


class Record:
    """Trials that are over, one a line; a mutant that was killed stays so while its file is the same."""

    def __init__(self, path: Path, tests: str) -> None:
        self._tests = tests
        self._known: dict[tuple[str, str], Entry] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        for line in path.read_text().splitlines() if path.exists() else ():
            entry = json.loads(line)
            known = Entry(entry["mutant"], entry["file"], entry["tests"], Trial(**entry["trial"]))
            self._known[known.mutant, known.file] = known
        self._out: IO[str] = path.open("a")

    def of(self, change: Change, source: bytes) -> Trial | None:
        """Return what is known of a mutant; nothing of a survivor when the tests have changed since."""
        entry = self._known.get((identity(change), _hash(source)))
        return entry.trial if entry and (entry.trial.is_killed or entry.tests == self._tests) else None

    def add(self, change: Change, source: bytes, trial: Trial) -> None:
        """Keep a trial."""
        self._out.write(json.dumps(asdict(Entry(identity(change), _hash(source), self._tests, trial))) + "\n")
        self._out.flush()


def identity(change: Change) -> str:
    """Return what a mutant is known by."""
    return f"{change.file}:{change.begin}:{change.end}:{change.after}"


def _hash(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()[:16]


@click.command("mutants")
@click.option("--n", "count", default=200, show_default=True, type=click.IntRange(1, 100_000), help="how many mutants")
@click.option("--seed", default=0, show_default=True, help="which; equal trees and seeds give equal mutants")
@click.option("--workers", default=0, type=click.IntRange(0, 256), help="trials at once; 0: one a core")
@click.option(
    "--record", "record_file", default=FOLDER / "trials.jsonl", type=click.Path(path_type=Path), help="goes on here"
)
@click.option("--only", default="", help="draw from files whose path begins so")
@click.option(
    "--fast", is_flag=True, help="without tests of scenarios and processes: what only they execute is not covered"
)
@click.option("--list", "is_list", is_flag=True, help="show the mutants, try none")
def main(count: int, seed: int, workers: int, record_file: Path, only: str, *, fast: bool, is_list: bool) -> None:
    """Change the product in N places, one at a time, run the tests that execute the line, and show what they miss."""
    drawn = draw(count, seed, only)
    if is_list:
        for change in drawn:
            click.echo(str(change))
        return
    workers = workers or len(os.sched_getaffinity(0))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="keplab-mutants-") as place:
        lines = _lines(Path(place), workers, FAST if fast else (*FAST, *SLOW))
        tests = hash_of((path for path in sorted((ROOT / "tests").rglob("*.py")) if HERE not in path.parents), ROOT)
        run = _Run(drawn, lines, Record(record_file, tests), declared_changes())
        is_whole = run.run(Path(place), workers)
    run.show()
    if not is_whole:
        sys.exit(130)
    sys.exit(0 if run.percent() >= AIM_PERCENT else 1)


def _lines(place: Path, workers: int, layers: Sequence[str]) -> LineMap:
    """Return which tests execute which lines of this tree; what is not yet recorded is, first."""
    folder = FOLDER / hash_of(product_files(ROOT), ROOT)
    begun = time.monotonic()
    tree = Copy(ROOT, place / "recording").place
    ran = record(tree, folder, ROOT, workers=workers, layers=layers)
    found = LineMap(folder, ROOT)
    click.echo(
        f"{len(found.tests):,} tests ({ran} files of them ran now, {time.monotonic() - begun:.0f} s); {len(found.failed)} failed and do not count"
    )
    return found


class _Run:
    """All trials of one call."""

    def __init__(self, drawn: Sequence[Change], lines: LineMap, kept: Record, declared: Declared) -> None:
        self._drawn, self._lines, self._kept, self._declared = drawn, lines, kept, declared
        self._done: dict[Change, Trial] = {}
        self._equivalent = {change: reason for change in drawn if (reason := declared.reason(change)) is not None}
        self._local = threading.local()
        self._running: set[int] = set()
        self._stopping = False

    def run(self, place: Path, workers: int) -> bool:
        """Try all; return False when interrupted."""
        sources = {file: (ROOT / file).read_bytes() for file in {change.file for change in self._drawn}}
        waiting: list[Change] = []
        for change in self._drawn:
            known = self._kept.of(change, sources[change.file])
            if known is not None:
                self._done[change] = known
            elif change not in self._equivalent:
                waiting.append(change)
        if self._done:
            click.echo(f"{len(self._done)} are known from the record")
        names: Iterator[int] = iter(range(workers))

        def begin() -> None:
            self._local.copy = Copy(ROOT, place / f"worker-{next(names)}")

        def one(change: Change) -> Trial | None:
            if self._stopping:
                return None
            return try_out(change, sources[change.file], self._local.copy, self._lines, self._running)

        begun = time.monotonic()
        with ThreadPoolExecutor(workers, initializer=begin) as pool:
            pending: dict[Future[Trial | None], Change] = {pool.submit(one, change): change for change in waiting}
            try:
                while pending:
                    done, _ = wait(pending, return_when=FIRST_COMPLETED)
                    for future in done:
                        self._take(pending.pop(future), future.result(), sources, begun, len(waiting), len(pending))
            except KeyboardInterrupt:
                self._stopping = True
                for future in pending:
                    future.cancel()
                for pid in list(self._running):
                    end(pid)
                return False
        return True

    def _take(
        self, change: Change, trial: Trial | None, sources: dict[str, bytes], begun: float, total: int, left: int
    ) -> None:
        if trial is None:
            return
        self._done[change] = trial
        self._kept.add(change, sources[change.file], trial)
        spent = time.monotonic() - begun
        eta_min = spent / (total - left) * left / 60
        how = f"by {trial.by}" if trial.by else f"{trial.tests} tests"
        click.echo(
            f"[{total - left}/{total}, {self.percent():.0f} % killed, {eta_min:.0f} min left] {trial.outcome}: {change} ({trial.seconds:.0f} s, {how})"
        )

    def percent(self) -> float:
        """Return how many of a hundred mutants that are not equivalent were killed."""
        counted = [trial for change, trial in self._done.items() if change not in self._equivalent]
        return 100 * sum(trial.is_killed for trial in counted) / len(counted) if counted else 100.0

    def show(self) -> None:
        """Print survivors, and a line for each component."""
        click.echo("")
        for change in self._drawn:
            trial = self._done.get(change)
            if trial is not None and not trial.is_killed and change not in self._equivalent:
                click.echo(f"{trial.outcome}: {change}\n    {change.scope or 'module'}: {change.code}")
        counts: dict[str, Counter[str]] = {}
        for change, trial in self._done.items():
            outcome = "equivalent" if change in self._equivalent else trial.outcome
            counts.setdefault(component_of(change.file), Counter())[outcome] += 1
        for change in set(self._equivalent) - set(self._done):
            counts.setdefault(component_of(change.file), Counter())["equivalent"] += 1
        outcomes = ("killed", "timeout", "survived", "not covered", "equivalent")
        click.echo(f"\n{'COMPONENT':<18}{''.join(f'{name.upper():>13}' for name in outcomes)}{'% KILLED':>11}")
        for name in sorted(counts):
            killed = counts[name]["killed"] + counts[name]["timeout"]
            judged = killed + counts[name]["survived"] + counts[name]["not covered"]
            share = f"{100 * killed / judged:.0f}" if judged else "-"
            click.echo(f"{name:<18}{''.join(f'{counts[name][each]:>13}' for each in outcomes)}{share:>11}")
        click.echo(
            f"{len(self._done)} of {len(self._drawn)} tried, {self.percent():.1f} % killed of those that are not declared equivalent; the aim is {AIM_PERCENT:g} %"
        )


if __name__ == "__main__":
    main()
