"""Identity of the running code: the version, the revision of its repository, and uncommitted changes."""

import hashlib
import os
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_CODE = ("*.py", "*.pyi", "*.proto")
_LIMIT_S = 20.0


@dataclass(frozen=True)
class Revision:
    """Identity of the code. `commit`: empty if the code is not in a repository. `changes`: digest of what
    differs from the commit, in code alone; empty if nothing does.
    """

    version: str
    commit: str = ""
    changes: str = ""

    @property
    def text(self) -> str:
        """One text that is equal for equal code."""
        if not self.commit:
            return f"version {self.version}"
        return f"{self.commit}+{self.changes}" if self.changes else self.commit


@cache
def revision(folder: Path = Path(__file__).parents[2]) -> Revision:
    """Return the identity of the code in `folder`.

    A wheel installed below another repository is not part of that repository: only tracked code has its
    revision.
    """
    try:
        known = version("keplab")
    except PackageNotFoundError:
        known = "unknown"
    try:
        _git(folder, "ls-files", "--error-unmatch", "services/__init__.py")
        commit = _git(folder, "rev-parse", "HEAD").decode().strip()
        changes = _git(folder, "diff", "HEAD", "--", *_CODE)
        new = _git(folder, "ls-files", "--others", "--exclude-standard", "-z", "--", *_CODE).decode().split("\0")
    except (OSError, subprocess.SubprocessError):
        return Revision(known)
    if not changes and not any(new):
        return Revision(known, commit)
    digest = hashlib.sha256(changes)
    for name in filter(None, new):
        digest.update(name.encode() + b"\0" + _content(folder / name))
    return Revision(known, commit, digest.hexdigest()[:12])


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _git(folder: Path, *words: str) -> bytes:
    # A hook of git sets GIT_DIR and its like, which would lead to the repository that is being committed to.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, timeout=_LIMIT_S, env=environ).stdout
