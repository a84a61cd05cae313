"""Access to the mesh that the page shows: on a data directory of this machine, or in containers beside this one.

Both list the processes and their health ports; the rest of the server does not know which of the two it is.
"""

import asyncio
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from lab.exchange.rest import kubeconfig
from lab.exchange.rest.endpoint import Endpoint
from lab.ui.rest import MANAGER, Rest
from services.api.errors import UNREADABLE
from services.api.identity import ADMIN, PAGE
from services.client.rpc import RpcTransport
from services.client.tls import ClientTls, TlsError, TlsFiles
from services.runtime import certificates, credentials
from services.runtime.components import HEALTH_PORT, SERVICES, component_of
from services.runtime.config import MeshError
from services.runtime.control import NoAnswer, ask
from services.runtime.mesh_directory import holder, parent_of, read_state
from services.runtime.real import RealClock, seeded_random
from services.telemetry import kernel

SUPERVISOR_MAX_S: Final = 5.0
REST_PORT: Final = 7080
_CONTAINER: Final[Mapping[str, Any]] = {
    "pid": 0,
    "port": HEALTH_PORT,
    "ports": {"health": HEALTH_PORT},
    "ready": True,
    "state": "Running",
    "uptime_s": 0.0,
    "restarts": 0,
    "last_error": "",
}
"""Known fields of a container whose name resolves to an address."""


@dataclass(frozen=True)
class Access:
    """Addresses and credentials of one mesh. `reader`, `writer`: tokens of the page and the administrator ("" if
    absent). `events`, `spans`: folders with the files of its processes, None where they cannot be seen.
    """

    grpc_target: str
    rest_url: str
    reader: str
    writer: str
    authority: Path
    tls: ClientTls | None
    events: Path | None
    spans: Path | None
    switches: tuple[str, ...] = ()

    def transport(self) -> RpcTransport:
        """Return a new connection in the page's own name; call it inside the running loop."""
        tokens = {PAGE.user: self.reader}
        return RpcTransport(self.grpc_target, tokens, clock=RealClock(), random=seeded_random(None), tls=self.tls)

    def rest(self) -> Rest:
        """Return a new REST client of the API server."""
        authority = self.authority.read_text("ascii")
        reader, writer = (
            Endpoint(kubeconfig.Access(self.rest_url.rstrip("/"), authority, token), agent=MANAGER)
            for token in (self.reader, self.writer)
        )
        return Rest(reader, writer)


class Place(Protocol):
    """Place in which the processes of the mesh run."""

    access: Access
    can_kill: bool
    """Whether faults can be injected here."""

    async def status(self) -> dict[str, Any]:
        """Return the processes as `keplab status` shows them, and the faults in force. Raises: MeshError."""
        ...

    def health_url(self, process: Mapping[str, Any]) -> str:
        """Return the health address of a process, `http://HOST:PORT`; empty string if it has no such port."""
        ...

    async def command(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request to the supervisor and return its answer. Raises: MeshError."""
        ...

    def how_to_break(self, target: str, action: str) -> str:
        """Return the command line for an action that must be done by hand; empty string if it can be done here."""
        ...


class NoMeshError(MeshError):
    """No mesh runs at that place."""


class LocalMesh:
    """The mesh on a data directory of this machine."""

    can_kill = True

    def __init__(self, data: Path, *, may_write: bool = False) -> None:
        """Raises: NoMeshError when no mesh runs there; MeshError when its credentials have no `keplab:ui`."""
        self._data = data.absolute()
        state = read_state(data)
        if state is None or not state.get("started"):
            starting = f"the mesh on {data} is starting" if holder(data) else f"no mesh runs on {data}"
            raise NoMeshError(starting)
        try:
            reader = credentials.page_tokens(data)[PAGE.user]
            writer = credentials.admin_tokens(data)[ADMIN.user] if may_write else ""
        except FileNotFoundError as error:
            raise MeshError(
                f"{error.filename}: not there; a mesh of this version has it: keplab down, keplab up"
            ) from None
        except (OSError, *UNREADABLE, KeyError) as error:
            raise MeshError(f"{data / credentials.FOLDER}: {error}") from None
        folder = data / credentials.FOLDER
        self.access = Access(
            state["grpc_target"],
            state["rest_url"],
            reader,
            writer,
            folder / "ca.crt",
            self._tls(folder) if state["security"] == "strict" else None,
            data / "events",
            data / "spans",
            tuple(state["switches"]),
        )

    @staticmethod
    def _tls(folder: Path) -> ClientTls:
        try:
            pair = credentials.client_pair(certificates.authority(folder), credentials.UI, PAGE)
            return ClientTls(TlsFiles(pair.certificate, pair.key, folder / "ca.crt"))
        except (OSError, ValueError, TlsError) as error:
            raise MeshError(f"{folder}: {error}") from None

    async def status(self) -> dict[str, Any]:
        """Return the supervisor's status, or the last one it wrote, corrected by the kernel's process states.

        Raises: MeshError.
        """
        return await asyncio.to_thread(self._status)

    def _status(self) -> dict[str, Any]:
        try:
            state = dict(ask(self._data, {"verb": "status"}, SUPERVISOR_MAX_S)["status"])
        except (NoAnswer, KeyError) as error:
            stored_state = read_state(self._data)
            if stored_state is None:
                raise MeshError(f"no mesh runs on {self._data}") from None
            state = {
                **stored_state,
                "conditions": [{"type": "SupervisorNotAnswering", "process": "", "message": str(error)}],
            }
        for process in state["processes"]:
            pid = process["pid"]
            if pid and parent_of(pid) != state["supervisor_pid"]:
                process["ready"], process["state"], process["uptime_s"] = False, "Gone", 0.0
            elif pid and (found_state := kernel.state_and_parent(pid)) is not None and found_state[0] == "T":
                process["state"] = "Stopped"
        return state

    def health_url(self, process: Mapping[str, Any]) -> str:
        """Return the health address of a process on this machine."""
        port = (process.get("ports") or {}).get("health", 0)
        return f"http://127.0.0.1:{port}" if port else ""

    async def command(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request to the supervisor and return its answer. Raises: MeshError."""
        try:
            return await asyncio.to_thread(ask, self._data, request, SUPERVISOR_MAX_S)
        except NoAnswer as error:
            raise MeshError(str(error)) from None

    def how_to_break(self, target: str, action: str) -> str:
        """Return the empty string: faults can be injected here."""
        return ""


@dataclass
class ContainerMesh:
    """The mesh in the containers of a compose project, seen from one of them."""

    access: Access
    can_kill: bool = field(default=False, init=False)

    @classmethod
    def from_folder(
        cls, server: str, folder: Path, *, may_write: bool, events: Path | None, spans: Path | None
    ) -> "ContainerMesh":
        """Return the mesh at gRPC address HOST:PORT, with the credentials in a folder. Raises: MeshError."""
        host = server.partition(",")[0].rpartition(":")[0]
        try:
            tokens = msgspec.json.decode((folder / "token.json").read_bytes(), type=dict[str, str])
            reader = tokens[PAGE.user]
            writer = ""
            if may_write:
                admin = msgspec.json.decode((folder / "admin.json").read_bytes(), type=dict[str, str])
                writer = admin[ADMIN.user]
            tls = None
            if os.environ.get("KEPLAB_SECURITY") == "strict":
                tls = ClientTls(TlsFiles(folder / "client.crt", folder / "client.key", folder / "ca.crt"))
        except OSError as error:
            raise MeshError(f"{error.filename}: {error.strerror}") from None
        except (*UNREADABLE, KeyError, TlsError) as error:
            raise MeshError(f"{folder}: {error}") from None
        rest = os.environ.get("KEPLAB_UI_REST_URL", f"https://{host}:{REST_PORT}")
        switches = tuple(word for word in os.environ.get("KEPLAB_SET", "").split(",") if word)
        return cls(Access(server, rest, reader, writer, folder / "ca.crt", tls, events, spans, switches))

    async def status(self) -> dict[str, Any]:
        """Return the containers whose names, those of the components, resolve."""
        loop = asyncio.get_running_loop()
        processes: list[dict[str, Any]] = []
        for service in SERVICES:
            try:
                address_infos = await loop.getaddrinfo(service, HEALTH_PORT, type=socket.SOCK_STREAM)
            except OSError:
                continue
            addresses = sorted({str(each[4][0]) for each in address_infos})
            for number, address in enumerate(addresses):
                several = len(addresses) > 1 or service == "kubelet"
                name = f"{service}/{number}" if several else service
                processes.append({**_CONTAINER, "name": name, "host": address})
        return {"processes": processes, "faults": [], "has_faults": False, "ready": bool(processes)}

    def health_url(self, process: Mapping[str, Any]) -> str:
        """Return the health address of a container, by its IP address: a server answers to no name but its own."""
        return f"http://{process['host']}:{HEALTH_PORT}"

    async def command(self, request: dict[str, Any]) -> dict[str, Any]:
        """Raise MeshError: there is no supervisor."""
        raise MeshError("a mesh in containers has no supervisor that this process could ask")

    def how_to_break(self, target: str, action: str) -> str:
        """Return the command line of the container engine's client for an action."""
        service = component_of(target) if "/" in target else target
        return {
            "kill": f"docker compose kill {service}",
            "pause": f"docker compose pause {service}",
            "heal": f"docker compose unpause {service}",
        }.get(action, "")
