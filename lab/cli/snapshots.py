"""Snapshots of a mesh: its store, its kubelets' files and its settings in one file; exact, of one store format.

The file is a compressed tar of what lies below the data directory, and `snapshot.json`. It has no keys and no
tokens. If the store is no database below the directory (memory, etcd), one is made from the API server's
objects.
Source: simulator 4.3.
"""

from __future__ import annotations

import io
import os
import secrets
import shutil
import signal
import sqlite3
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from apiserver_fake.storage.journal import JournalError
from apiserver_fake.storage.records import BaseObject
from apiserver_fake.storage.sqlite import STORE_FORMAT, SqliteJournal
from lab.cli.output import no_mesh
from lab.scenarios.initial_state import State
from services.api.errors import UNREADABLE
from services.api.times import format_time
from services.runtime.etcd_members import FOLDER as ETCD
from services.runtime.mesh_directory import RUN_FOLDER, SWITCHES_FILE, holder, make_data_directory, read_state
from services.runtime.real import write_atomically

KIND: Final = "MeshSnapshot"
ABOUT: Final = "snapshot.json"
FOLDER: Final = "snapshots"
SUFFIX: Final = ".keplab"
WITHOUT_STORE: Final = "; one that does not run needs a store of SQLite there"
STORE: Final = "apiserver"
KUBELETS: Final = "kubelet"
_GZIP: Final = b"\x1f\x8b"
SECRET_BYTES: Final = 32
"""Length of the secret in a store made for a snapshot; the API server signs continue tokens with it."""
_MEMBERS_MAX: Final = 100_000
_BYTES_MAX: Final = 64 << 30


class SnapshotError(ValueError):
    """A snapshot that cannot be taken or used; the message says why."""


class About(msgspec.Struct, rename="camel", kw_only=True):
    """Description of a snapshot. `store_format`: see `apiserver_fake/storage/sqlite.py`; `engine`: of the store
    that it was taken of.
    """

    kind: str = KIND
    api_version: str = "keplab.dev/v1"
    store_format: int = STORE_FORMAT
    resource_version: int = 0
    taken: str = ""
    switches: list[str] = []
    objects: int = 0
    is_running: bool = False
    engine: str = "sqlite"


def place_of(data: Path, name: str) -> Path:
    """Return the file for a name: below the mesh's directory, or the path itself if it has a slash or the suffix."""
    if "/" in name or name.endswith(SUFFIX):
        return Path(name)
    if not name or name.startswith("."):
        raise SnapshotError(f"{name!r}: want a name, or the path of a file")
    return data / FOLDER / f"{name}{SUFFIX}"


def is_snapshot(path: Path) -> bool:
    """Return whether a file is a snapshot, judged by its first bytes."""
    try:
        with path.open("rb") as file:
            if file.read(2) != _GZIP:
                return False
        with tarfile.open(path, "r:gz") as archive:
            first = archive.next()
            return first is not None and first.name == ABOUT
    except (OSError, tarfile.TarError, EOFError):
        return False


ReadState = Callable[[], State]
"""Function that reads the objects of the mesh's API server, all at one version."""


def save(data: Path, path: Path, read: ReadState) -> About:
    """Take a snapshot of the mesh on a directory, whether it runs or not. Raises: SnapshotError, OSError.

    In a running mesh all processes but API servers and stores are stopped during the copy. `read`: used for a
    running mesh whose store is not SQLite's.
    """
    running = read_state(data)
    engine = str(running.get("engine") or "sqlite") if running else "sqlite"
    if running is None and not (data / STORE / "store.db").is_file():
        no_mesh(data, WITHOUT_STORE)
    with tempfile.TemporaryDirectory(prefix="keplab-snapshot-", dir=data) as folder:
        copy = Path(folder)
        with _at_rest(running):
            if engine == "sqlite":
                _copy_store(data / STORE, copy / STORE)
            else:
                _make_store(read(), copy / STORE)
            for name in (KUBELETS, RUN_FOLDER):
                if (data / name).is_dir():
                    shutil.copytree(data / name, copy / name, ignore=shutil.ignore_patterns("lock", "*.lock", "*.sock"))
        about = _about(copy / STORE / "store.db")
        about.engine = engine
        about.taken, about.is_running = format_time(time.time()), running is not None
        about.switches = list(running["switches"]) if running else _switches(data)
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=6) as archive:
            text = msgspec.json.format(msgspec.json.encode(about), indent=1)
            entry = tarfile.TarInfo(ABOUT)
            entry.size, entry.mode = len(text), 0o600
            archive.addfile(entry, io.BytesIO(text))
            for name in (STORE, KUBELETS, RUN_FOLDER):
                if (copy / name).is_dir():
                    archive.add(copy / name, name, filter=_plain)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, buffer.getvalue())
    return about


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Return a file's entry as every machine would write it."""
    if not (entry.isfile() or entry.isdir()):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


@contextmanager
def _at_rest(running: dict[str, Any] | None) -> Iterator[None]:
    pids = [
        int(each["pid"])
        for each in (running or {}).get("processes") or ()
        if not each["name"].startswith(("apiserver", "etcd"))
    ]
    stopped: list[int] = []
    try:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                stopped.append(pid)
        yield
    finally:
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _make_store(state: State, target: Path) -> None:
    """Make a store of a state, such as a server keeps on disk. Raises: SnapshotError."""
    journal = SqliteJournal(target)
    kept = [
        BaseObject(each.resource, int(each.document["metadata"]["resourceVersion"]), msgspec.json.encode(each.document))
        for each in state.objects
    ]
    try:
        journal.begin_from(secrets.token_hex(SECRET_BYTES).encode(), state.rv, kept)
    except JournalError as error:
        raise SnapshotError(str(error)) from None
    finally:
        journal.release()
    (target / "lock").unlink(missing_ok=True)


def _copy_store(source: Path, target: Path) -> None:
    target.mkdir(mode=0o700)
    # What was acknowledged is read first: the copy may have more, never less.
    acked = (source / "acked").read_bytes() if (source / "acked").is_file() else b""
    there = sqlite3.connect(f"file:{(source / 'store.db').absolute()}?mode=ro", uri=True)
    copy = sqlite3.connect(target / "store.db")
    try:
        there.backup(copy)
    except sqlite3.Error as error:
        raise SnapshotError(f"{source / 'store.db'}: {error}") from None
    finally:
        copy.close()
        there.close()
    if acked:
        (target / "acked").write_bytes(acked)


def _about(store: Path) -> About:
    database = sqlite3.connect(store)
    try:
        newest, objects = database.execute(
            "SELECT coalesce(max(rv), 0), count(DISTINCT resource || '/' || namespace || '/' || name) FROM changes"
        ).fetchone()
        # A store that was made begins at a version at which nothing may have changed.
        (folded,) = database.execute("SELECT value FROM meta WHERE key = 'folded_rv'").fetchone() or (0,)
        return About(resource_version=max(int(newest), int(folded)), objects=int(objects))
    except sqlite3.Error as error:
        raise SnapshotError(f"{store}: {error}") from None
    finally:
        database.close()


def _switches(data: Path) -> list[str]:
    try:
        return list(msgspec.json.decode((data / RUN_FOLDER / SWITCHES_FILE).read_bytes(), type=list[str]))
    except (OSError, *UNREADABLE):
        return []


def about_of(path: Path) -> About:
    """Return the description of a snapshot. Raises: SnapshotError, if it is no snapshot or of another store format."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            member = archive.next()
            file = archive.extractfile(member) if member is not None and member.name == ABOUT else None
            if file is None:
                raise SnapshotError(f"{path}: no snapshot of a mesh: want one that `keplab snapshot save` made")
            about = msgspec.json.decode(file.read(1 << 20), type=About)
    except FileNotFoundError:
        raise SnapshotError(f"{path}: there is no such snapshot") from None
    except (OSError, tarfile.TarError, EOFError, *UNREADABLE) as error:
        raise SnapshotError(f"{path}: no snapshot of a mesh, or a torn one: {error}") from None
    if about.kind != KIND:
        raise SnapshotError(f"{path}: kind {about.kind!r}: want {KIND}")
    if about.store_format != STORE_FORMAT:
        problem = f"its store has format {about.store_format}, this keplab reads and writes format {STORE_FORMAT}"
        raise SnapshotError(f"{path}: {problem}; use the release that made it, or export it there as kwok")
    return about


@contextmanager
def unpack(path: Path) -> Iterator[Path]:
    """Yield a temporary directory with the snapshot's files, like that of a stopped mesh. Raises: SnapshotError."""
    about_of(path)
    with tempfile.TemporaryDirectory(prefix="keplab-snapshot-") as folder:
        _extract(path, Path(folder))
        yield Path(folder)


def _extract(path: Path, folder: Path) -> None:
    try:
        with tarfile.open(path, "r:gz") as archive:
            size = count = 0
            for member in archive:
                count, size = count + 1, size + member.size
                parts = Path(member.name).parts
                is_ours = member.name == ABOUT or (parts and parts[0] in (STORE, KUBELETS, RUN_FOLDER))
                if not is_ours or ".." in parts or not (member.isfile() or member.isdir()):
                    raise SnapshotError(f"{path}: {member.name!r} has no place in a snapshot")
                if count > _MEMBERS_MAX or size > _BYTES_MAX:
                    raise SnapshotError(f"{path}: larger than any mesh")
                archive.extract(member, folder, filter="data")
    except (OSError, tarfile.TarError, EOFError) as error:
        raise SnapshotError(f"{path}: torn or damaged: {error}") from None


def restore(path: Path, data: Path) -> About:
    """Replace the directory's state by that of a snapshot; keys, tokens and logs stay. Raises: SnapshotError, OSError.

    Nothing is changed before the whole file was read. The data of an etcd of the mesh's own is deleted: it is
    another state than that of the restored kubelets.
    """
    about = about_of(path)
    if holder(data) > 0 or read_state(data) is not None:
        raise SnapshotError(f"a mesh runs on {data}; stop it with `keplab down` first")
    make_data_directory(data)
    with tempfile.TemporaryDirectory(prefix="keplab-snapshot-", dir=data) as folder:
        _extract(path, Path(folder))
        for name in (STORE, KUBELETS, RUN_FOLDER):
            shutil.rmtree(data / name, ignore_errors=True)
            if (Path(folder) / name).is_dir():
                os.replace(Path(folder) / name, data / name)
        for member in (data / ETCD).glob(f"{ETCD}*"):
            shutil.rmtree(member)
    return about
