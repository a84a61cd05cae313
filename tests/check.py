"""`python -m tests.check [SINCE]`: what to run while you work: lint of what changed, and the unit and component tests beside it.

What changed is what differs from SINCE (a commit; HEAD without it), new files included; without any change, the last commit. Slow tests are
left out: `make test` runs everything.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("apiserver_fake", "claim_controller", "kubelet", "lab", "scheduler", "services")
FLOORS = ("lab", "services")
"""Folders whose tests are named without them: lab/cli is tested in tests/unit/cli."""
LAYERS = ("unit", "component")
DOCUMENTS = "tests/architecture/test_documents.py"
RULES = (
    "tests/architecture/test_words.py",
    "tests/architecture/test_layout.py",
    "tests/architecture/test_schema_fields.py",
)


def changed(since: str) -> list[str]:
    """Return the files that differ from a commit, new ones included; those of the last commit when none does."""
    found = {*_git("diff", "--name-only", since), *_git("ls-files", "--others", "--exclude-standard")}
    if not found and since == "HEAD":
        found = set(_git("diff", "--name-only", "HEAD~1"))
    return sorted(name for name in found if (ROOT / name).exists())


def beside(file: str, root: Path) -> Iterator[str]:
    """Yield the folders and files of tests that are beside a file."""
    parts = Path(file).parts
    if parts[0] == "tests":
        if parts[1] in LAYERS or file.startswith("tests/architecture/test_"):
            yield file if parts[-1].startswith("test_") else str(Path(file).parent)
        return
    if file.endswith(".md"):
        yield DOCUMENTS
        return
    if parts[0] not in PRODUCT:
        return
    if parts[0] in FLOORS:
        parts = parts[1:]
    for layer in LAYERS:
        # The nearest folder that mirrors the file's: of component tests there are few below a component's own.
        for depth in range(len(parts) - 1, 0, -1):
            folder = Path("tests", layer, *parts[:depth])
            if (root / folder).is_dir():
                yield str(folder)
                break


def without_nested(names: Iterable[str]) -> list[str]:
    """Return the names without those that lie below another."""
    kept: list[str] = []
    for name in sorted(set(names)):
        if not any(name.startswith(f"{other}/") for other in kept):
            kept.append(name)
    return kept


def main(since: str) -> int:
    """Lint, then test; return 1 when something was found."""
    try:
        files = changed(since)
    except subprocess.CalledProcessError as error:
        print(f"git knows no changes since {since!r}: {error.stderr.strip().splitlines()[0]}", file=sys.stderr)
        return 2
    if not files:
        print("nothing has changed", file=sys.stderr)
        return 0
    began_s = time.monotonic()
    python = [name for name in files if name.endswith(".py") and "_pb2" not in name]
    tests = without_nested(each for name in files for each in beside(name, ROOT))
    steps: list[list[str]] = []
    if python:
        ruff = str(Path(sys.executable).with_name("ruff"))
        steps += [
            [ruff, "format", "--force-exclude", "--check", "--quiet", *python],
            [ruff, "check", "--force-exclude", "--quiet", *python],
        ]
        if any(not name.startswith("tests/") for name in python):
            steps.append([str(Path(sys.executable).with_name("lint-imports")), "--no-cache"])
            tests = without_nested((*tests, *RULES))
    if tests:
        steps.append([sys.executable, "-m", "pytest", *tests, "-p", "tests.progress", "-n", "2", "--dist", "loadfile"])
    failed = False
    for step in steps:
        print("$ " + " ".join(_short(word) for word in step), flush=True)
        done = subprocess.run(step, cwd=ROOT, check=False, capture_output="lint-imports" in step[0], text=True)
        if done.returncode not in (0, 5):  # 5: all of them are slow
            failed = True
            print(done.stdout or "", end="")
    print(f"{len(files)} files, {time.monotonic() - began_s:.0f} s: {'found something' if failed else 'all is well'}")
    return int(failed)


def _short(word: str) -> str:
    return Path(word).name if word.startswith(str(Path(sys.executable).parent)) else word


def _git(*words: str) -> list[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "HEAD"))
    except KeyboardInterrupt:
        sys.exit(130)
