"""Facts about processes from the kernel, and short paths for sockets: the only module that asks the kernel.

Linux answers in `/proc`. Elsewhere (macOS) `/dev/fd` and `ps` answer some of it; figures without a source are
not a number. Simulations need none of them, and a mesh of processes runs without these figures.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
PS_MAX_S = 5.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
LINE_BYTES_MAX = 4096
"""Length up to which Linux shows a command line that a process has set itself."""
_ARG_START, _ARG_END = 45, 46
"""Places in `/proc/self/stat` behind the name, of the addresses of the command line."""


def boot_id() -> str:
    """Return the id of the machine's current boot; empty if the kernel has none."""
    try:
        return (PROC / "sys" / "kernel" / "random" / "boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def release_memory() -> None:
    """Return freed memory of this process to the system, with glibc; elsewhere do nothing."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def state_and_parent(pid: int) -> tuple[str, int] | None:
    """Return the state letter of a process (`R`, `S`, `T` stopped, `Z` zombie) and its parent; None when there is
    no such process.
    """
    if (PROC / "self").exists():
        try:
            text = (PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
        state, parent = text.rpartition(")")[2].split()[:2]
        return state, int(parent)
    command = ["ps", "-o", "state=,ppid=", "-p", str(pid)]
    fields = subprocess.run(command, capture_output=True, text=True, timeout=PS_MAX_S, check=False).stdout.split()
    return (fields[0][:1], int(fields[1])) if len(fields) == 2 else None


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes; 0 if the kernel does not report it."""
    try:
        return int((PROC / "self" / "statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def end_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends; on Linux only."""
    with_prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    if with_prctl is not None:
        with_prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def can_adopt() -> bool:
    """Whether this process can become the parent of orphans among its descendants, and wait for them."""
    return hasattr(os, "pidfd_open") and PROC.exists()


def adopt_orphans(is_wanted: bool) -> None:
    """Let this process become the parent of its descendants' orphans, or let them have none of ours; Linux only."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(is_wanted), 0, 0, 0)


def rename_process(words: Sequence[str]) -> None:
    """Show these words, with spaces between, as the command line of this process, as far as it has space for them.

    Only Linux can. A line that does not end with a zero is taken by its kernel for one that was set so.
    """
    with suppress(OSError, ValueError, IndexError):
        fields = (PROC / "self" / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        start, size = int(fields[_ARG_START]), int(fields[_ARG_END]) - int(fields[_ARG_START])
        line = os.fsencode(" ".join(words))[: min(size, LINE_BYTES_MAX) - 2]
        with (PROC / "self" / "mem").open("r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(line.ljust(size - 1, b"\0") + b" ")


class ShortFolder:
    """A short path to a folder, so that a socket in it fits into a socket address, however long the folder's own
    path is.

    It is the folder's descriptor in `/proc`, or a link in a temporary folder where there is no `/proc`. Close it
    when the socket is bound or connected, or removed: the path ends with `close`. Raises: OSError, when the folder
    does not exist.
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
        """Release the descriptor, or remove the link."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._made:
            shutil.rmtree(self._made, ignore_errors=True)
            self._made = ""
