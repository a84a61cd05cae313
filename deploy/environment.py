"""`python3 deploy/environment.py runtime|all`: make .venv from a lock; say before what it takes, and how far it is.

`runtime` is what keplab runs with; `all` adds what tests, linters and documents need. Every file is held to the hash of
its lock. Modules are compiled here once: some machines forbid Python to write bytecode, and then each process would
compile them anew. Needs the standard library alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PYTHON = str(VENV / "bin" / "python")
SOURCES = ("apiserver_fake", "claim_controller", "kubelet", "lab", "protos", "scheduler", "services")
LOCKS = {"runtime": "requirements-runtime.lock", "all": "requirements.lock"}
COSTS = {
    "runtime": "what keplab runs with: about 190 MB in .venv, half a minute to two minutes",
    "all": "what tests and linters need besides: about 850 MB in .venv in all, one to four minutes",
}
PINNED = re.compile(r"^([\w.-]+)(?:\[[\w,]+\])?==", re.MULTILINE)
COLLECTED = re.compile(r"Collecting ([\w.-]+)")
PIP = (PYTHON, "-m", "pip", "--disable-pip-version-check")


class Failed(Exception):
    """A step did not succeed; the text is what it printed."""


class Progress:
    """How many packages are there of how many: a line that changes on a terminal, one line a quarter elsewhere."""

    def __init__(self, total: int) -> None:
        self._total, self._shown = total, 0
        self._seen: set[str] = set()
        self._is_terminal = sys.stderr.isatty()

    def note(self, name: str) -> None:
        """Count a package when it is first named."""
        self._seen.add(name)
        count = min(len(self._seen), self._total)
        if self._is_terminal:
            self._write(f"\r\033[K  {count} of {self._total} packages: {name}")
        elif count * 4 // self._total > self._shown:
            self._shown = count * 4 // self._total
            self._write(f"  {count} of {self._total} packages\n")

    def say(self, text: str) -> None:
        """Name what goes on now in place of the count."""
        self._write(f"\r\033[K  {text}" if self._is_terminal else f"  {text}\n")

    def end(self) -> None:
        """Leave the line."""
        if self._is_terminal:
            self._write("\r\033[K")

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def pinned(lock: str) -> set[str]:
    """Return the names of a lock's packages; one that differs by the version of Python counts once."""
    return set(PINNED.findall(lock))


def block_of(lock: str, name: str) -> str:
    """Return the lines of a lock that pin one package, with its hashes."""
    taken: list[str] = []
    for line in lock.splitlines():
        if taken and not line.startswith((" ", "\t")):
            break
        if taken or line.startswith(f"{name}=="):
            taken.append(line)
    return "\n".join(taken) + "\n"


def install(kind: str) -> None:
    """Install a lock and keplab from this tree; of a lock that is installed already, keplab alone."""
    lock, known = ROOT / LOCKS[kind], VENV / f".{kind}.lock"
    if known.exists() and known.read_bytes() == lock.read_bytes():
        run([*PIP, "install", "--quiet", "--no-deps", "--no-build-isolation", "-e", str(ROOT)])
        return
    print(f"Installing {COSTS[kind]}.", file=sys.stderr)
    began_s = time.monotonic()
    progress = Progress(len(pinned(lock.read_text())))
    if not Path(PYTHON).exists():
        run([sys.executable, "-m", "venv", str(VENV)])
    follow([*PIP, "install", "--progress-bar", "off", "--require-hashes", "-r", str(lock)], progress)
    # setuptools makes the editable installation; the lock of everything pins it.
    build = VENV / "build.lock"
    build.write_text(block_of((ROOT / LOCKS["all"]).read_text(), "setuptools"))
    run([*PIP, "install", "--quiet", "--require-hashes", "-r", str(build)])
    progress.say("keplab")
    run([*PIP, "install", "--quiet", "--no-deps", "--no-build-isolation", "-e", str(ROOT)])
    progress.end()
    known.write_bytes(lock.read_bytes())
    print(f"Installed in {time.monotonic() - began_s:.0f} s.", file=sys.stderr)


def compile_sources() -> None:
    """Compile the product's modules where they changed; a module that changes later is compiled by who imports it."""
    folders = [str(ROOT / name) for name in SOURCES]
    run([PYTHON, "-m", "compileall", "-q", "-j", "0", *folders])


def follow(command: list[str], progress: Progress) -> None:
    """Run pip and count the packages that it names. Raises: Failed with the end of its output."""
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            lines.append(line)
            if found := COLLECTED.match(line):
                progress.note(found[1])
            elif line.startswith("Installing collected packages"):
                progress.say("writing them to .venv")
    if process.returncode:
        progress.end()
        raise Failed("".join(line for line in lines if not line.startswith("WARNING"))[-2000:])


def run(command: list[str]) -> None:
    """Run a command that says nothing when it succeeds. Raises: Failed with what it printed."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Failed(done.stdout + done.stderr)


def main(kind: str) -> str | int:
    """Make .venv, or compile only (`compile`); return the exit code."""
    if sys.version_info < (3, 11):
        return f"keplab needs python3 3.11 or newer; this is {sys.version.split()[0]}"
    try:
        if kind in LOCKS:
            install(kind)
        compile_sources()
    except Failed as error:
        return f"{error}\n.venv could not be made: the lines above say why"
    except KeyboardInterrupt:
        return "\n.venv is not complete: the same command goes on"
    return 0


if __name__ == "__main__":
    os.chdir(ROOT)
    if sys.argv[1:] not in (["runtime"], ["all"], ["compile"]):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
