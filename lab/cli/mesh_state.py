"""The state of a mesh at a version: from a running mesh, from the directory of a stopped one, or from a file."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from apiserver_fake.registry.catalogue import Catalogue
from apiserver_fake.storage.journal import JournalError
from apiserver_fake.storage.sqlite import SqliteJournal
from apiserver_fake.storage.store import Gap, Store, restore
from lab.cli.live import progress_bar
from lab.cli.mesh_api import MeshApi
from lab.cli.output import no_mesh
from lab.cli.snapshots import WITHOUT_STORE, is_snapshot, unpack
from lab.recordings.format import Parts, Unreadable
from lab.recordings.reader import Recording
from lab.recordings.writer import is_recording
from lab.scenarios.initial_state import State, StateError, StoredObject, newest_moment
from lab.scenarios.initial_state import read_state as read_file
from lab.scenarios.recording_summary import state_at as recorded_state
from services.api.errors import UNREADABLE, ApiError, UnknownOutcome
from services.api.identity import ADMIN, Identity
from services.api.wire import Api, Request
from services.client.rpc import RpcTransport
from services.client.tls import ClientTls, TlsFiles
from services.runtime import certificates, credentials
from services.runtime.mesh_directory import RUN_FOLDER, SWITCHES_FILE, read_state
from services.runtime.real import RealClock, seeded_random

STORE = "apiserver"
T = TypeVar("T")


def state_of(source: Path, at: int) -> State:
    """Return the state at version `at`, 0 for the newest. Raises: StateError naming the source that cannot be read."""
    if is_recording(source):
        try:
            recording = Recording.open(source)
        except Unreadable as error:
            raise StateError(str(error)) from None
        with recording:
            return recorded_state(recording, at)
    if source.is_file() and is_snapshot(source):
        with unpack(source) as folder:
            return _stored_state(folder, at)
    if source.is_file():
        state = read_file(source)
        if at not in (0, state.rv):
            raise StateError(f"{source}: holds version {state.rv} alone, not {at}")
        return state
    running = read_state(source)
    if running is None:
        return _stored_state(source, at)
    try:
        kinds = [kind.title for kind in MeshApi(source).kinds() if kind.has_past]
        return asyncio.run(_running(source, running, kinds, at))
    except (ApiError, UnknownOutcome) as error:
        raise StateError(f"the mesh on {source}: {error}") from None


async def _running(source: Path, running: Mapping[str, Any], kinds: list[str], at: int) -> State:
    transport = transport_of(source, running)
    try:
        return await _read(transport.api(), kinds, at, parts_of(source), tuple(running["switches"]))
    finally:
        await transport.close()


def transport_of(source: Path, running: Mapping[str, Any], identity: Identity = ADMIN) -> RpcTransport:
    """Return the transport to the API server of a running mesh, for `identity`: its administrator or scheduler.

    Raises: StateError.
    """
    process = "admin" if identity == ADMIN else "scheduler"
    try:
        tokens, tls = credentials.tokens_of(source, process), None
        if running["security"] == "strict":
            authority = certificates.authority(source / credentials.FOLDER)
            pair = credentials.client_pair(authority, process, identity)
            tls = ClientTls(TlsFiles(pair.certificate, pair.key, authority.path))
    except (OSError, *UNREADABLE, ValueError) as error:
        raise StateError(f"{source / credentials.FOLDER}: {error}") from None
    return RpcTransport(running["grpc_target"], tokens, clock=RealClock(), random=seeded_random(None), tls=tls)


async def _read(api: Api, kinds: list[str], at: int, parts: Parts, switches: tuple[str, ...]) -> State:
    """Return what an API server has stored. Raises: ApiError, UnknownOutcome."""
    at = at or (await api.call(Request(verb="list", resource="namespaces"))).unwrap().rv
    objects: list[StoredObject] = []
    with progress_bar(f"reading version {at}", quiet=False, is_transient=True) as bar:
        task = bar.add_task("", total=len(kinds))
        for kind in kinds:
            answer = (await api.call(Request(verb="list", resource=kind, at=str(at)))).unwrap()
            objects += (StoredObject(kind, item) for item in msgspec.json.decode(answer.body)["items"])
            bar.advance(task)
    wall_s = newest_moment(objects)
    return State(rv=at, wall_s=wall_s, objects=tuple(objects), parts=parts, switches=switches)


def _stored_state(source: Path, at: int) -> State:
    """Return the state that the store of a mesh that does not run holds."""
    folder = source / STORE
    if not (folder / "store.db").is_file():
        no_mesh(source, WITHOUT_STORE)
    journal, store = SqliteJournal(folder), Store()
    try:
        contents = journal.read()
        restore(store, contents.base, contents.base_rv, contents.entries, 0.0, Catalogue().resources)
        at = at or store.rv
        if at > store.rv:
            raise StateError(f"{source}: version {at} was not reached; the newest is {store.rv}")
        records = store.state_at(at)
    except (JournalError, Gap, ApiError, *UNREADABLE) as error:
        raise StateError(f"{source}: {error}") from None
    finally:
        journal.release()
    objects = tuple(StoredObject(record.resource, msgspec.json.decode(record.body)) for record in records)
    return State(
        rv=at, wall_s=newest_moment(objects), objects=objects, parts=parts_of(source), switches=_switches(source)
    )


def parts_of(source: Path) -> Parts:
    """Return the parts that the mesh on this directory was started with: its node definitions. Raises: StateError."""
    files = sorted((source / RUN_FOLDER).glob("nodes-*.json"))
    return Parts(nodes={str(node["name"]): node for path in files for node in _json(path, list[dict[str, Any]])})


def _switches(source: Path) -> tuple[str, ...]:
    """Return the switches of the mesh that ran last on this directory. Raises: StateError."""
    path = source / RUN_FOLDER / SWITCHES_FILE
    return tuple(_json(path, list[str])) if path.exists() else ()


def _json(path: Path, form: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=form)
    except (OSError, *UNREADABLE) as error:
        raise StateError(f"{path}: {error}") from None
