"""The directory a mesh runs on: who holds it, and what it says of itself.

The lock is held as long as its holder lives, so no stale file can lie about it.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import time
from pathlib import Path
from typing import Any

import msgspec

from services.api.errors import UNREADABLE
from services.runtime.config import EXIT_LOCKED, MeshError, StartError
from services.telemetry import kernel
from services.telemetry.pieces import make_private

LOCK_TRIES, LOCK_PERIOD_S = 5, 0.02
STATE_FILE = "mesh.json"
LOCK_FILE = "mesh.lock"
OWN_LOCK_FILE = "process.lock"
SOCKETS_FOLDER = "nodes"
RUN_FOLDER = "run"
SWITCHES_FILE = "switches.json"
"""In it: the switches of the mesh that ran last, NAME=VALUE, for whoever goes on from its store."""
FOLDERS = (
    "apiserver",
    "audit",
    "credentials",
    "dra-driver",
    "etcd",
    "events",
    "kubeconfigs",
    "kubelet",
    "logs",
    RUN_FOLDER,
    "simulator",
    "spans",
    SOCKETS_FOLDER,
)
"""What a mesh has below its directory."""
RECORDING = "ui.keprec"
"""What the live page records: a folder, and a file once it ended."""
FILES = ("kubeconfig", STATE_FILE, LOCK_FILE, "supervisor.sock", "supervisor.log", RECORDING)
"""And the files beside them; one that is being replaced goes on after a dot."""


class AlreadyRunning(MeshError):
    """Another supervisor holds this data directory."""


def make_data_directory(data_dir: Path) -> bool:
    """Have a directory for a mesh that only its owner may enter; return whether it was made now.

    One that was there with other things in it is left as it is: what the mesh puts there is private by itself. Raises:
    OSError.
    """
    is_new = not data_dir.exists()
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    if all(is_meshs(path) for path in data_dir.iterdir()):
        make_private(data_dir)
    return is_new


def narrow(data_dir: Path) -> None:
    """Take the rights of others from the files of a mesh that an earlier version of it made. Raises: OSError."""
    for folder in FOLDERS:
        for path, folders, names in os.walk(data_dir / folder):
            for each in (path, *(os.path.join(path, name) for name in (*folders, *names))):
                with contextlib.suppress(FileNotFoundError):
                    found = os.lstat(each)
                    if found.st_mode & 0o077 and found.st_uid == os.geteuid() and not stat.S_ISLNK(found.st_mode):
                        os.chmod(each, stat.S_IMODE(found.st_mode) & ~0o077)


def lock(data_dir: Path) -> int:
    """Return the descriptor that holds the directory as long as it, or its copy in a child, is open. Raises:
    AlreadyRunning, OSError."""
    path = data_dir / LOCK_FILE
    for tries_left in reversed(range(LOCK_TRIES)):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.stat().st_ino == os.fstat(fd).st_ino:
                break  # and not a file that `discard_lock` has removed meanwhile
        except FileNotFoundError:
            pass
        except BlockingIOError:
            if not tries_left:
                pid = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
                os.close(fd)
                raise AlreadyRunning(
                    f"a mesh already runs on {data_dir} (pid {pid}); stop it with `keplab down`"
                ) from None
        # Perhaps only `holder`, having a look.
        os.close(fd)
        time.sleep(LOCK_PERIOD_S)
    with contextlib.suppress(PermissionError):
        os.fchmod(fd, 0o600)
    write_holder(fd, os.getpid())
    return fd


def write_holder(fd: int, pid: int) -> None:
    """Note who holds the directory that `lock` returned this descriptor for. Raises: OSError, when a disk has no space
    for a first note; a later one takes none."""
    os.pwrite(fd, f"{pid:<16}".encode(), 0)


def discard_lock(data_dir: Path, *, is_new: bool) -> None:
    """Remove the lock of a mesh that was never begun, by who holds it, and a directory that was made for it."""
    with contextlib.suppress(OSError):
        (data_dir / LOCK_FILE).unlink()
        if is_new:
            data_dir.rmdir()


def is_meshs(path: Path) -> bool:
    """Whether a mesh has put that into its directory: a folder or a file of its own, by the whole name."""
    if path.is_dir() and not path.is_symlink():
        return path.name in FOLDERS or path.name == RECORDING
    return any(path.name == name or path.name.startswith(f"{name}.") for name in FILES)


def purge(data_dir: Path) -> list[str]:
    """Remove what a mesh has put into its directory, and the directory when nothing else is in it; return the names of
    what is left, which is others'. Nothing is removed where no mesh ever ran. Raises: AlreadyRunning, OSError."""
    if not (data_dir / LOCK_FILE).exists():
        return sorted(path.name for path in data_dir.iterdir()) if data_dir.is_dir() else []
    fd = lock(data_dir)  # no mesh may begin meanwhile
    try:
        for path in [path for path in data_dir.iterdir() if is_meshs(path)]:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != LOCK_FILE:
                path.unlink(missing_ok=True)
        (data_dir / LOCK_FILE).unlink()
    finally:
        os.close(fd)
    left = sorted(path.name for path in data_dir.iterdir())
    if not left:
        data_dir.rmdir()
    return left


def hold(folder: Path, what: str) -> int:
    """Return the descriptor that holds a process's own directory as long as it lives. Raises: StartError when another
    process has it, by what is said of it; OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    fd = os.open(folder / OWN_LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
    return parent_of(pid) >= 0


def parent_of(pid: int) -> int:
    """Return which process started that one; -1 when it does not run, or only has not been collected yet."""
    found = kernel.state_and_parent(pid)
    return -1 if found is None or found[0] == "Z" else found[1]


def read_state(data_dir: Path) -> dict[str, Any] | None:
    """Return the status of the mesh that runs on this directory; None when none does or it is not ready yet."""
    if not holder(data_dir):
        return None
    try:
        return msgspec.json.decode((data_dir / STATE_FILE).read_bytes(), type=dict[str, Any])
    except (OSError, *UNREADABLE):
        return None
