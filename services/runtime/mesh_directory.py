"""The directory a mesh runs on: who holds it, and what it says of itself.

The lock is held as long as its holder lives, so no stale file can lie about it.
"""

import fcntl
import os
import time
from pathlib import Path
from typing import Any

import msgspec

from services.api.errors import UNREADABLE
from services.runtime.config import EXIT_LOCKED, MeshError, StartError

LOCK_TRIES, LOCK_PERIOD_S = 5, 0.02
STATE_FILE = "mesh.json"
LOCK_FILE = "mesh.lock"
OWN_LOCK_FILE = "process.lock"
SOCKETS_FOLDER = "nodes"


class AlreadyRunning(MeshError):
    """Another supervisor holds this data directory."""


def lock(data_dir: Path) -> int:
    """Return the descriptor that holds the directory for as long as it is open. Raises: AlreadyRunning, OSError."""
    fd = os.open(data_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    for tries_left in reversed(range(LOCK_TRIES)):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if tries_left:
                # Perhaps only `holder`, having a look.
                time.sleep(LOCK_PERIOD_S)
                continue
            pid = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            raise AlreadyRunning(f"a mesh already runs on {data_dir} (pid {pid}); stop it with `keplab down`") from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, str(os.getpid()).encode(), 0)
    return fd


def hold(folder: Path, what: str) -> int:
    """Return the descriptor that holds a process's own directory as long as it lives. Raises: StartError when another
    process has it, by what is said of it; OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    fd = os.open(folder / OWN_LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        os.close(fd)
        raise StartError(f"{what} runs already (pid {pid}): it holds {folder}", EXIT_LOCKED) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, str(os.getpid()).encode(), 0)
    return fd


def holder(data_dir: Path) -> int:
    """Return the pid of the supervisor that runs a mesh on this directory; 0 when none does."""
    try:
        fd = os.open(data_dir / LOCK_FILE, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(fd, 32, 0)
        return int(text) if text.strip().isdigit() else -1
    finally:
        os.close(fd)
    return 0


def is_alive(pid: int) -> bool:
    """Whether that process still runs; one whose parent has not collected it yet does not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def read_state(data_dir: Path) -> dict[str, Any] | None:
    """Return the status of the mesh that runs on this directory; None when none does or it is not ready yet."""
    if not holder(data_dir):
        return None
    try:
        return msgspec.json.decode((data_dir / STATE_FILE).read_bytes(), type=dict[str, Any])
    except (OSError, *UNREADABLE):
        return None
