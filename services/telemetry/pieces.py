"""Growing files: appended in whole lines, cut into pieces, the oldest removed; they never end their process.

A file `<component>-<incarnation>.jsonl` continues as `<component>-<incarnation>.000002.jsonl` and so on. No
piece is ever renamed, so that a reader that follows a file continues in the next. A line is complete or absent:
a part that a full disk accepted is cut off again. Source: guarantees section 1 and L-LOG; FM-A7, AS-50.
"""

import errno
import os
import re
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MIB = 1 << 20
PIECE_MIB_MAX, PIECES_KEPT = 256, 10
DIRECTORY_MIB_MAX = 8 * 1024
PASSING: Final = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
)
"""Errors of a disk or a kernel that may be temporary; other errors mean that the path was badly chosen."""
_NAME = re.compile(r"(?P<stem>.+?)(?:\.(?P<number>\d{6}))?\.jsonl")
_PRIVATE_FILE, _PRIVATE_DIRECTORY = 0o600, 0o700
_READ_ONLY = 0o400


@dataclass(frozen=True)
class Budget:
    """Limits of a component's files: a piece's size in bytes (0: one piece, of any length), and the number of kept
    closed pieces, including those of earlier incarnations (0: all).
    """

    piece_bytes: int = PIECE_MIB_MAX * MIB
    kept: int = PIECES_KEPT


DEFAULT: Final = Budget()
KEEP_ALL: Final = Budget(0, 0)


def make_private(directory: Path) -> None:
    """Create a directory that only its owner may enter. An existing one of ours gets these permissions, unless it
    is shared on purpose (`/tmp`). Raises: OSError.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=_PRIVATE_DIRECTORY)
    status = directory.stat()
    if status.st_uid == os.geteuid() and status.st_mode & 0o077 and not status.st_mode & stat.S_ISVTX:
        directory.chmod(_PRIVATE_DIRECTORY)


class Pieces:
    """One growing file. Only the constructor raises."""

    def __init__(self, path: Path, budget: Budget = KEEP_ALL) -> None:
        """Open the first piece; if the disk has no space for it, every line tries again. Raises: OSError when the file
        cannot be created.
        """
        self.path = path
        self._budget = budget
        self._number = 1
        self._fd = -1
        self._size = 0
        self._is_torn = False
        try:
            make_private(path.parent)
            self._open(path)
        except OSError as error:
            if error.errno not in PASSING:
                raise

    def append(self, data: bytes) -> bool:
        """Append whole lines with one write, if all of them fit; return whether they did."""
        try:
            if self._fd < 0:
                make_private(self.path.parent)
                self._open(self.path)
            elif self._budget.piece_bytes and self._size and self._size + len(data) > self._budget.piece_bytes:
                self._begin_next()
            if self._is_torn:
                # Half a line stands at the end: it is ended, so that it spoils no other.
                data = b"\n" + data
            written = os.write(self._fd, data)
        except OSError:
            return False
        if written < len(data):
            self._cut(written)
            return False
        self._size += written
        self._is_torn = False
        return True

    def mark_incomplete(self, is_incomplete: bool) -> None:
        """Mark the file as incomplete at its end, in its mode, which needs no disk space."""
        with suppress(OSError):
            if self._fd >= 0:
                os.fchmod(self._fd, _READ_ONLY if is_incomplete else _PRIVATE_FILE)

    def close(self) -> None:
        """Close the file; nothing may be appended afterwards."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _PRIVATE_FILE)
        self._size = os.fstat(self._fd).st_size
        self._remove_oldest(path)

    def _begin_next(self) -> None:
        """Go on in a new piece; in the old one if there can be none."""
        before = self._fd
        path = self.path.with_name(f"{self.path.stem}.{self._number + 1:06d}.jsonl")
        try:
            self._open(path)
        except OSError:
            return
        self._number += 1
        os.close(before)

    def _cut(self, written: int) -> None:
        try:
            os.ftruncate(self._fd, self._size)
        except OSError:
            self._size += written
            self._is_torn = True

    def _remove_oldest(self, current: Path) -> None:
        if not self._budget.kept:
            return
        component = _component(current)
        mine = [path for path in by_age(current.parent) if _component(path) == component and path != current]
        for path in mine[: -self._budget.kept]:
            with suppress(OSError):
                path.unlink()


def _component(path: Path) -> str:
    """Return whose file that is, without incarnation and number."""
    match = _NAME.fullmatch(path.name)
    stem = match["stem"] if match is not None else path.stem
    return stem.rpartition("-")[0] or stem


def files_of(folder: Path) -> dict[str, list[Path]]:
    """Return the files below a folder by their name without number, each as its pieces in writing order."""
    numbered: dict[str, list[tuple[int, Path]]] = {}
    for path in folder.glob("*.jsonl"):
        if (match := _NAME.fullmatch(path.name)) is not None:
            numbered.setdefault(match["stem"], []).append((int(match["number"] or 1), path))
    return {stem: [path for _, path in sorted(found)] for stem, found in sorted(numbered.items())}


def is_incomplete(path: Path) -> bool:
    """Whether lines are missing at the end of a file, as far as its writer knew."""
    with suppress(OSError):
        return not path.stat().st_mode & stat.S_IWUSR
    return False


def by_age(folder: Path, pattern: str = "*.jsonl") -> list[Path]:
    """Return the files of a folder, the last written one at the end."""
    found: list[tuple[int, str, Path]] = []
    for path in folder.glob(pattern):
        with suppress(OSError):
            found.append((path.stat().st_mtime_ns, path.name, path))
    return [path for _, _, path in sorted(found)]


def trim(folders: Iterable[Path], bytes_max: int) -> Sequence[Path]:
    """Remove closed pieces, the oldest first, until these folders fit into `bytes_max`; return the removed ones.

    The last piece of each component stays: it may still be open, and readers need it first.
    """
    newest: dict[tuple[Path, str], Path] = {}
    pieces: list[tuple[int, str, int, Path]] = []
    for folder in folders:
        for path in by_age(folder, "*"):
            with suppress(OSError):
                state = path.stat()
                if stat.S_ISREG(state.st_mode):
                    pieces.append((state.st_mtime_ns, path.name, state.st_size, path))
                    newest[folder, _owner(path)] = path
    total = sum(size for _, _, size, _ in pieces)
    removed: list[Path] = []
    for _, _, size, path in sorted(pieces):
        if total <= bytes_max:
            break
        if newest[path.parent, _owner(path)] != path:
            with suppress(OSError):
                path.unlink()
                total -= size
                removed.append(path)
    return removed


def _owner(path: Path) -> str:
    """Return whose file that is: `apiserver` for `apiserver-00ff.000002.jsonl` and for `apiserver.log.000001`."""
    return _component(path) if path.suffix == ".jsonl" else path.name.partition(".log")[0]
