"""`python -m tests.pythons [WORD…]`: run pytest on the oldest and the newest Python of this machine that are not the one that runs this.

Pythons are looked for on the PATH, and where pyenv and uv keep theirs; only versions that pyproject.toml names count, and only where an
environment can be made. Each gets one in `.venv/python3.N`, of requirements.lock, every file held to its hash. Words are
pytest's; without any a share of the tests runs: what reads, prints and waits, simulations, processes, and the wheel.
"""

import glob
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHARE = (
    "tests/unit/api",
    "tests/unit/client",
    "tests/unit/cli/test_closed_output.py",
    "tests/unit/cli/test_command_table.py",
    "tests/unit/cli/test_mistakes.py",
    "tests/unit/cli/test_narrow_terminals.py",
    "tests/scenarios/test_seeds.py",
    "tests/process/test_components.py",
    "tests/process/test_wheel.py",
    "--slow",
    "--executed",
    "-n",
    "2",
    "--dist",
    "loadfile",
)
"""What differed between versions of Python so far, in little time: parsers and their messages, msgspec, click, asyncio, signals,
packaging. `make test-newest` runs the rest."""
KEPT = ("{PYENV_ROOT}/versions/*/bin", "{UV_PYTHON_INSTALL_DIR}/*/bin")
PROBE = """
import sys, sysconfig
print(*sys.version_info[:2], sys.implementation.name, sys.version_info.releaselevel, bool(sysconfig.get_config_var("Py_GIL_DISABLED")))
import ensurepip, sqlite3, ssl, venv
"""
PROBE_MAX_S = 30
Version = tuple[int, int]


def named(project: str) -> list[Version]:
    """Return the versions of Python that the classifiers of a pyproject.toml name, the oldest first."""
    classifiers = tomllib.loads(project)["project"]["classifiers"]
    numbers = [each.removeprefix("Programming Language :: Python :: ").split(".") for each in classifiers]
    return sorted((int(words[0]), int(words[1])) for words in numbers if len(words) == 2 and words[0] == "3")


def places(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the folders in which Pythons may be: those of the PATH, then where pyenv and uv keep theirs."""
    home = environ.get("HOME", "/nonexistent")
    roots = {
        "PYENV_ROOT": environ.get("PYENV_ROOT", f"{home}/.pyenv"),
        "UV_PYTHON_INSTALL_DIR": environ.get("UV_PYTHON_INSTALL_DIR", f"{home}/.local/share/uv/python"),
    }
    yield from (Path(each) for each in environ.get("PATH", "").split(os.pathsep) if each)
    for pattern in KEPT:
        yield from (Path(each) for each in sorted(glob.glob(pattern.format(**roots)), reverse=True))


def unusable(python: Path, version: Version) -> str | None:
    """Return why a file is no CPython of that version that can make environments; "" for one that does not run; None if it is one."""
    try:
        done = subprocess.run(
            [python, "-c", PROBE], capture_output=True, text=True, timeout=PROBE_MAX_S, check=False, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.stdout.split() != [*map(str, version), "cpython", "final", "False"]:
        return ""  # a shim of pyenv for a version that is not chosen, another implementation, a preview
    return done.stderr.strip().splitlines()[-1] if done.returncode else None


def find(version: Version, environ: Mapping[str, str]) -> Path | None:
    """Return the first Python of a version that can make environments, and say on standard error which ones cannot."""
    name = f"python{version[0]}.{version[1]}"
    for folder in places(environ):
        path = folder / name
        if os.access(path, os.X_OK) and path.is_file():
            reason = unusable(path, version)
            if reason is None:
                return path
            if reason:
                print(f"{path} makes no environment: {reason}", file=sys.stderr)
    return None


def others(own: Version, versions: list[Version], environ: Mapping[str, str]) -> dict[Version, Path]:
    """Return the oldest that is older than `own`, and the newest that is newer, if the machine has them."""
    found: dict[Version, Path] = {}
    for candidates in ([each for each in versions if each < own], [each for each in reversed(versions) if each > own]):
        for version in candidates:
            if python := find(version, environ):
                found[version] = python
                break
    return found


def environment(python: Path, version: Version) -> Path:
    """Return the Python of an environment of the lock, made anew if lock, project or interpreter have changed. Raises: CalledProcessError."""
    place = ROOT / ".venv" / f"python{version[0]}.{version[1]}"
    made, mark = place / "bin" / "python", place / "made-of"
    sources = b"".join((ROOT / name).read_bytes() for name in ("requirements.lock", "pyproject.toml"))
    wanted = f"{python.resolve()} {ROOT} {hashlib.sha256(sources).hexdigest()}\n"
    if mark.exists() and mark.read_text() == wanted:
        return made
    shutil.rmtree(place, ignore_errors=True)
    pip = (made, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")
    for command in (
        (python, "-m", "venv", place),
        (*pip, "--require-hashes", "-r", ROOT / "requirements.lock"),
        (*pip, "--no-deps", "--no-build-isolation", "-e", ROOT),
    ):
        subprocess.run(command, check=True)
    mark.write_text(wanted)
    return made


def main(words: Sequence[str]) -> int:
    """Run pytest with these words on each; returns the exit code of the first that fails."""
    own = sys.version_info[:2]
    versions = named((ROOT / "pyproject.toml").read_text())
    found = others(own, versions, os.environ)
    if not found:
        print(f"tests ran on Python {own[0]}.{own[1]} alone: this machine has no other of {_text(versions)}")
    for version, python in found.items():
        label = f"Python {_text([version])} ({python})"
        try:
            made = environment(python, version)
        except subprocess.CalledProcessError as error:
            print(f"no environment of {label}: {' '.join(map(str, error.cmd[:4]))} … ended with {error.returncode}")
            return 1
        print(f"{label}: pytest {' '.join(words)}", flush=True)
        environ = {**os.environ, "PATH": f"{made.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
        if code := subprocess.run([made, "-m", "pytest", *words], cwd=ROOT, env=environ, check=False).returncode:
            return code
    return 0


def _text(versions: list[Version]) -> str:
    return ", ".join(f"{major}.{minor}" for major, minor in versions)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or SHARE))
