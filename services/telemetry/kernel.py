"""What the machine says of processes, and how long paths of sockets become short: the one module that asks its kernel.

Linux answers in `/proc`. Elsewhere (macOS) `/dev/fd` and `ps` answer some of it, and what nothing answers is not a
number: simulations need none of it, and a mesh of processes runs without these figures.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

PROC = Path("/proc")
PS_MAX_S = 5.0
_PR_SET_PDEATHSIG = 1


def boot_id() -> str:
    """Return what names the time since the machine was started; "" where the kernel does not say."""
    try:
        return (PROC / "sys" / "kernel" / "random" / "boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def release_memory() -> None:
    """Have the C library give back what this process has freed, where it is glibc; elsewhere nothing happens."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def state_and_parent(pid: int) -> tuple[str, int] | None:
    """Return the letter of what a process does (`R`, `S`, `T` stopped, `Z` ended and not collected) and its parent;
    None when there is no such process."""
    if (PROC / "self").exists():
        try:
            text = (PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
        state, parent = text.rpartition(")")[2].split()[:2]
        return state, int(parent)
    command = ["ps", "-o", "state=,ppid=", "-p", str(pid)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=PS_MAX_S, check=False).stdout.split()
    return (said[0][:1], int(said[1])) if len(said) == 2 else None


def resident_bytes() -> int:
    """Return how much memory this process has in use; 0 where the kernel does not say."""
    try:
        return int((PROC / "self" / "statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, where it can: on Linux."""
    with_prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    if with_prctl is not None:
        with_prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class ShortFolder:
    """A folder under a path that leaves room for a name in a socket's address, however long its own is.

    Its descriptor in `/proc`, or a link in a folder of its own where there is no `/proc`. Close it when the socket is
    bound or connected, or removed: `close` ends the path. Raises: OSError, when the folder is not there.
    """

    def __init__(self, folder: Path) -> None:
        self._fd, self._made = -1, ""
        if (PROC / "self" / "fd").exists():
            self._fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self.path = f"{PROC}/self/fd/{self._fd}"
            return
        if not folder.is_dir():
            raise NotADirectoryError(f"{folder} is no directory")
        self._made = tempfile.mkdtemp(prefix="k")
        self.path = f"{self._made}/d"
        os.symlink(folder.absolute(), self.path)

    def close(self) -> None:
        """Give back what the path takes."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._made:
            shutil.rmtree(self._made, ignore_errors=True)
            self._made = ""
