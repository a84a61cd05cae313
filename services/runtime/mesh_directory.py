"""The data directory of a mesh: its lock, its status, and its contents.

The lock is held as long as its holder lives, so a stale file cannot mislead.
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
"""File in the directory with the switches of the last mesh, NAME=VALUE, for a mesh that continues from its store."""
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
"""Folders of a mesh in its directory."""
RECORDING = "ui.keprec"
"""Recording of the live page: a folder, and a file once it has ended."""
FILES = ("kubeconfig", STATE_FILE, LOCK_FILE, "supervisor.sock", "supervisor.log", RECORDING)
"""Files of a mesh beside the folders; a file in replacement has a suffix after a dot."""


class AlreadyRunning(MeshError):
    """Error: another supervisor holds this data directory."""


def make_data_directory(data_dir: Path) -> bool:
    """Create a mesh's directory that only its owner may enter; return whether it was created now.

    An existing directory with other contents is left unchanged: the mesh's own files in it are private. Raises:
    OSError.
    """
    is_new = not data_dir.exists()
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    if all(is_meshs(path) for path in data_dir.iterdir()):
        make_private(data_dir)
    return is_new


def narrow(data_dir: Path) -> None:
    """Remove other users' permissions from the files that an earlier version made for a mesh. Raises: OSError."""
    for folder in FOLDERS:
        for path, folders, names in os.walk(data_dir / folder):
            for entry in (path, *(os.path.join(path, name) for name in (*folders, *names))):
                with contextlib.suppress(FileNotFoundError):
                    info = os.lstat(entry)
                    if info.st_mode & 0o077 and info.st_uid == os.geteuid() and not stat.S_ISLNK(info.st_mode):
                        os.chmod(entry, stat.S_IMODE(info.st_mode) & ~0o077)


def lock(data_dir: Path) -> int:
    """Lock the directory and return the descriptor, which holds the lock while it, or its copy in a child, is open.
    Raises: AlreadyRunning, OSError.
    """
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
    """Write the holder's pid through the descriptor that `lock` returned. Raises: OSError, when a disk has no space
    for the first write; a later one needs none.
    """
    os.pwrite(fd, f"{pid:<16}".encode(), 0)


def discard_lock(data_dir: Path, *, is_new: bool) -> None:
    """Remove the lock of a mesh that never started, and a directory that was made for it. Only the holder may call
    it.
    """
    with contextlib.suppress(OSError):
        (data_dir / LOCK_FILE).unlink()
        if is_new:
            data_dir.rmdir()


def is_meshs(path: Path) -> bool:
    """Whether the path is a mesh's own folder or file in its directory, by its full name."""
    if path.is_dir() and not path.is_symlink():
        return path.name in FOLDERS or path.name == RECORDING
    return any(path.name == name or path.name.startswith(f"{name}.") for name in FILES)


def purge(data_dir: Path) -> list[str]:
    """Remove a mesh's files from its directory, and the directory if it is then empty; return the names that are
    left.

    Nothing is removed where no mesh ever ran. Raises: AlreadyRunning, OSError.
    """
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
    """Lock a process's own directory and return the descriptor. Raises: StartError, with the text `what`, when
    another process holds it; OSError.
    """
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
    """Return the pid of the supervisor that runs a mesh on this directory; 0 if none does."""
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
    """Whether that process still runs; a zombie does not count."""
    return parent_of(pid) >= 0


def parent_of(pid: int) -> int:
    """Return the pid of a process's parent; -1 if the process does not run, or is a zombie."""
    found = kernel.state_and_parent(pid)
    return -1 if found is None or found[0] == "Z" else found[1]


def read_state(data_dir: Path) -> dict[str, Any] | None:
    """Return the status of the mesh that runs on this directory; None if none runs or it is not ready yet."""
    if not holder(data_dir):
        return None
    try:
        return msgspec.json.decode((data_dir / STATE_FILE).read_bytes(), type=dict[str, Any])
    except (OSError, *UNREADABLE):
        return None
