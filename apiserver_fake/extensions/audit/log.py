"""The audit log's file: one line per event, rotated by size, kept by number and age. A full disk loses
lines, not requests.

Source: upstream `staging/src/k8s.io/apiserver/plugin/pkg/audit/log`, from which the names of rotated files are.
"""

import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import structlog

STDOUT = "-"
MAX_SIZE_MB = 100
_STAMP = "%Y-%m-%dT%H-%M-%S"
_log = structlog.get_logger()


@dataclass(frozen=True)
class Rotation:
    """Rotation of the audit log. `max_size_mb`: megabytes at which a file is rotated; 0 means 100.

    `max_backup`: number of rotated files kept. `max_age_days`: days for which they are kept. 0 means no limit.
    """

    max_size_mb: int = 0
    max_backup: int = 0
    max_age_days: int = 0


class AuditFile:
    """Appends lines to the audit log's file; `written` and `lost` count them."""

    def __init__(self, path: str, rotation: Rotation, wall: Callable[[], float]) -> None:
        self._path, self._rotation, self._wall = path, rotation, wall
        self._max_bytes = (rotation.max_size_mb or MAX_SIZE_MB) << 20
        self._fd, self._size = -1, 0
        self._is_failing = False
        self.written = self.lost = 0

    def open(self) -> None:
        """Open the file, creating its folder. Raises: OSError."""
        if self._path == STDOUT:
            self._fd = sys.stdout.fileno()
            return
        Path(self._path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._fd).st_size

    def write(self, line: bytes) -> None:
        """Append one line; if that fails, count it as lost."""
        try:
            if self._path != STDOUT and self._size and self._size + len(line) > self._max_bytes:
                self._rotate()
            if self._fd < 0:
                self.open()
            self._append(line)
        except OSError as error:
            self.lost += 1
            if not self._is_failing:
                _log.error("audit.lost", path=self._path, error=error.strerror or str(error))
            self._is_failing = True
            return
        self.written += 1
        if self._is_failing:
            self._is_failing = False
            _log.info("audit.resumed", path=self._path, lost=self.lost)

    def _append(self, line: bytes) -> None:
        sent = os.write(self._fd, line)
        if sent < len(line):
            if self._path != STDOUT:
                # Half a line would spoil the next one.
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, self._size)
            raise OSError(f"{sent} of {len(line)} bytes written")
        self._size += sent

    def _rotate(self) -> None:
        path = Path(self._path)
        os.close(self._fd)
        self._fd, self._size = -1, 0
        now = self._wall()
        stamp = datetime.fromtimestamp(now, UTC)
        kept = path.with_name(f"{path.stem}-{stamp.strftime(_STAMP)}.{stamp.microsecond // 1000:03d}{path.suffix}")
        path.rename(kept)
        older = sorted(path.parent.glob(f"{path.stem}-*T*{path.suffix}"), reverse=True)
        most, oldest_s = self._rotation.max_backup, now - self._rotation.max_age_days * 86_400
        for place, backup in enumerate(older):
            is_old = self._rotation.max_age_days and backup.stat().st_mtime < oldest_s
            if (most and place >= most) or is_old:
                backup.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file."""
        if self._path != STDOUT and self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
