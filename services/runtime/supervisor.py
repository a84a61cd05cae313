"""Supervision of a whole mesh of processes on this machine: start, restart, stop.

All files are below one data directory: credentials, kubeconfig, the state file `mesh.json`, and a log, event log and
span file per process. The processes die with their supervisor, even if it is SIGKILLed. A lock on the directory shows
whether a mesh runs there, so a stale file cannot mislead.
"""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import structlog

from services.client.rpc import RpcTransport
from services.runtime import credentials, rotation
from services.runtime.child import Child
from services.runtime.components import CLAIM_CONTROLLER, MODULES, SIMULATOR_API, component_of
from services.runtime.config import MeshError
from services.runtime.control import ControlServer
from services.runtime.faults.breaking import Breaking
from services.runtime.mesh.command_lines import CommandLines, faults_file, free_port, log_file, ready_file
from services.runtime.mesh.hosts import SCALED, SCALED_FILE, SCALED_PREFIX, scaled_nodes
from services.runtime.mesh.identities import MeshIdentities
from services.runtime.mesh.keeper import ProcessKeeper
from services.runtime.mesh.nursery import Nursery
from services.runtime.mesh.options import TELEMETRY_FOLDERS, MeshOptions
from services.runtime.mesh_directory import (
    RUN_FOLDER,
    SOCKETS_FOLDER,
    STATE_FILE,
    SWITCHES_FILE,
    lock,
    make_data_directory,
    narrow,
)
from services.runtime.real import RealClock, seeded_random, write_atomically
from services.telemetry.eventlog import FileEventLog, new_incarnation
from services.telemetry.pieces import MIB, make_private, trim

STATE_PERIOD_S = 2.0
RENEWAL_PERIOD_S = 60.0
"""Interval in seconds between checks of certificates; a tenth of their life if that is shorter."""
TRIM_PERIOD_S = 30.0
"""Interval in seconds between checks of the total size of events, spans and logs."""
CLIENT_CONTROLLERS = ("clusterrole-aggregation-controller", "root-ca-cert-publisher", "service-account-controller")
"""Controllers that `*` does not include: their objects are for external clients."""


class Supervisor:
    """Supervisor of a mesh. Call `start` and `stop` once each, the other methods in between."""

    def __init__(self, options: MeshOptions, lock_fd: int = -1) -> None:
        """`lock_fd`: the descriptor of an existing lock of the directory, from `lock`."""
        self._options = options
        self.data_dir = self._data = options.data_dir.absolute()
        """The data directory."""
        self.kubeconfig = self._data / credentials.KUBECONFIG_FILE
        """The kubeconfig of the administrator."""
        self.events_dir, self.spans_dir = self._data / "events", self._data / "spans"
        """Directories of the processes' event logs and span files."""
        self.sockets_dir = self._data / SOCKETS_FOLDER
        """Directory of the nodes' sockets, with a subdirectory per node."""
        self._page = ""
        self._clock = RealClock()
        self._random = seeded_random(None)
        self._log = structlog.get_logger()
        self.children: dict[str, Child] = {}
        """The processes by name, in the order they were started."""
        self._lock_fd = lock_fd
        self._tasks: list[asyncio.Task[None]] = []
        self._identities: MeshIdentities | None = None
        self._nursery: Nursery | None = None
        self._is_ready = False
        self._state_error = ""
        self._restarting = asyncio.Lock()
        self._keeper = ProcessKeeper(
            self._clock,
            options.nodes + sum(len(nodes) for nodes in options.definitions.values()),
            is_up=lambda: self._is_ready,
            on_change=self._write_state,
            on_end=lambda name: self._breaking.on_ended(name),
        )
        self._breaking = Breaking(self, self._clock, has_files=options.has_faults, component_of=component_of)
        self._event_file: FileEventLog | None = None
        self._control: ControlServer | None = None

    async def start(self) -> None:
        """Start the mesh and wait until every process is ready; after an error or a cancellation nothing is left
        running.

        Raises: AlreadyRunning; MeshError with the line of the process that could not start.
        """
        try:
            identities = self._prepare()
            self._nursery = Nursery(self._modules())
            lines = self._lines
            self._control = ControlServer(self._data, self._answer)
            await self._control.start()
            self._tasks.append(asyncio.create_task(self._keep_certificates()))
            shared = await self._start_etcd() if self._options.engine == "etcd" else []
            names = ["apiserver", *(f"apiserver-{number}" for number in range(2, self._options.apiservers + 1))]
            servers = [self._add(name, [*lines.apiserver(name), *shared]) for name in names]
            await self._keeper.start_all(servers)
            for server in servers:
                # From now on restarts must use the same ports, because clients keep using them.
                server.arguments += ["--grpc-port", str(server.ports["grpc"]), "--rest-port", str(server.ports["rest"])]
            write_atomically(self.kubeconfig, identities.kubeconfig(self.rest_urls), mode=0o600)
            if self._options.serves_clients:
                place = self._data / credentials.CLIENTS_FOLDER
                credentials.put_client_kubeconfigs(place, self.rest_url, identities.authority)
            rest = [self._add(name, arguments) for name, arguments in lines.schedulers()]
            managers = ("controllers", CLAIM_CONTROLLER)
            rest += [self._add(name, identities.flags_of(name)) for name in managers]
            if self._options.serves_clients and "controllers" in self.children:
                controllers = ("*", *CLIENT_CONTROLLERS)
                self.children["controllers"].arguments += [t for name in controllers for t in ("--controllers", name)]
            rest += [self._add(name, arguments) for name, arguments in lines.kubelets()]
            if (scaled := scaled_nodes(self._data)) and scaled != b"[]":
                rest.append(self._add(f"kubelet/{SCALED}", lines.scaled_kubelet()))
            rest += [self._add(name, arguments) for name, arguments in lines.device_plugins()]
            rest += [self._add(name, arguments) for name, arguments in lines.drivers()]
            await self._keeper.start_all([child for child in rest if child.name not in self._options.without])
            if self._options.simulator_api is not None:
                simulator = self._add(SIMULATOR_API, lines.simulator(self._options.simulator_api))
                await self._keeper.start_all([simulator])
            await self._close_nursery()
            self._is_ready = True
            self._write_state()
            self._tasks.append(asyncio.create_task(self._keep_state()))
        except OSError as error:
            await self.stop()
            raise MeshError(f"{error.filename or self._data}: {error.strerror}") from None
        except BaseException:
            await asyncio.shield(asyncio.ensure_future(self.stop()))
            raise

    async def stop(self) -> None:
        """Stop every process, last started first, the API servers and etcd last of all; release the directory."""
        for task in self._tasks:
            task.cancel()
        self._breaking.close()
        if self._control is not None:
            await self._control.close()
        if self._event_file is not None:
            self._event_file.close()
            self._event_file = None
        for child in self.children.values():
            child.is_wanted = False
        await self._close_nursery()
        last = ("apiserver", "etcd")
        others = [child for child in reversed(self.children.values()) if component_of(child.name) not in last]
        # Kubelets and controllers may send their final writes to a server that still listens.
        await asyncio.gather(*(child.stop() for child in others))
        for component in last:
            await asyncio.gather(*(child.stop() for child in self._processes_of(component)))
        if self._lock_fd >= 0:
            with suppress(OSError):
                (self._data / STATE_FILE).unlink(missing_ok=True)
            os.close(self._lock_fd)
            self._lock_fd = -1

    def kill(self, name: str, number: int = signal.SIGKILL, *, down_s: float | None = None) -> None:
        """Send a signal to a process. If it dies, it is restarted after the back-off, or after `down_s` seconds.

        Raises: KeyError for an unknown process; MeshError when it is not running.
        """
        child = self.child(name)
        if not child.pid:
            raise MeshError(f"{name} is not running")
        if down_s is not None:
            child.next_down_s = down_s
        os.kill(child.pid, number)

    def faults_file_of(self, name: str) -> Path:
        """Return the path of the file with a process's machine faults (`services.runtime.machine`)."""
        return faults_file(self._data, name)

    async def restart(self, name: str, switches: Sequence[str] = (), *, at_once: bool = False) -> None:
        """Stop one process gracefully, start it again and wait until it is ready.

        `switches`: NAME=VALUE, which override its earlier ones from now on. `at_once`: stop it by force, so that it
        does nothing more. Raises: KeyError, MeshError.
        """
        child = self.child(name)
        await child.stop(at_once=at_once)
        child.arguments += [flag for assignment in switches for flag in ("--set", assignment)]
        child.forgive()
        await self._keeper.start_all([child])
        child.restarts += 1

    async def _start_etcd(self) -> list[str]:
        """Return the flags with which API servers connect to etcd; without given URLs, start an etcd first.

        Raises: MeshError, OSError.
        """
        if self._options.etcd_servers:
            return ["--etcd-servers", self._options.etcd_servers]
        # Only here: no other engine needs it.
        from services.runtime.etcd_members import make_members

        members = make_members(self._data, self._options.etcd_members, free_port)
        self.children |= {child.name: child for child in members.children}
        await self._keeper.start_all(members.children)
        return ["--etcd-servers", members.servers, *members.flags]

    def _processes_of(self, component: str) -> list[Child]:
        return [child for child in self.children.values() if component_of(child.name) == component]

    def child(self, name: str) -> Child:
        """Return one process. Raises: KeyError for an unknown name."""
        if name not in self.children:
            raise KeyError(f"no process is called {name}; there are {', '.join(self.children)}")
        return self.children[name]

    @property
    def grpc_target(self) -> str:
        """HOST:PORT of the gRPC server; comma-separated for several servers."""
        return ",".join(f"127.0.0.1:{each.ports['grpc']}" for each in self._processes_of("apiserver"))

    @property
    def authority(self) -> Path:
        """Path of the CA certificate that signed the API server's certificate."""
        assert self._identities is not None, "the mesh is not started"
        return self._identities.authority.path

    @property
    def rest_url(self) -> str:
        """URL of the REST server, for kubectl."""
        return self.rest_urls[0]

    @property
    def rest_urls(self) -> list[str]:
        """URLs of the REST servers, one per API server."""
        return [f"https://127.0.0.1:{each.ports['rest']}" for each in self._processes_of("apiserver")]

    def status(self) -> dict[str, Any]:
        """Return the document that `keplab status -o json` prints."""
        now = self._clock.now()
        servers = self._processes_of("apiserver")
        is_known = bool(servers) and all(each.ports for each in servers)
        return {
            "kubeconfig": str(self.kubeconfig),
            "rest_url": self.rest_url if is_known else "",
            "grpc_target": self.grpc_target if is_known else "",
            "started": self._is_ready,
            "state_error": self._state_error,
            "ready": self._is_ready and all(child.is_ready for child in self.children.values()),
            "supervisor_pid": os.getpid(),
            "data_dir": str(self._data),
            "token_files": self._identities.token_files if self._identities is not None else {},
            "security": self._options.security,
            "switches": list(self._options.switches),
            "certificate_life_s": self._options.certificate_life.total_seconds(),
            "engine": self._options.engine,
            "page": self._page,
            "has_faults": self._options.has_faults,
            "faults": self._breaking.status(),
            "processes": [
                {
                    "name": child.name,
                    "pid": child.pid,
                    "port": child.ports.get("grpc", child.ports.get("health", 0)),
                    "ports": child.ports,
                    "ready": child.is_ready,
                    "state": child.state,
                    "next_try_in_s": round(max(0.0, child.next_try_at - now), 1) if child.next_try_at else None,
                    "uptime_s": round(now - child.started_at, 1) if child.pid else 0.0,
                    "restarts": child.restarts,
                    "last_error": child.last_error,
                    "log": str(child.log),
                }
                for child in self.children.values()
            ],
        }

    def show_page(self, address: str) -> None:
        """Add the address of the live page that is served beside the mesh to the status."""
        self._page = address
        self._write_state()

    def client_transport(self, identity: str = "", server: str = "") -> RpcTransport:
        """Return a new connection as one identity, "" for the administrator; the caller must close it.

        `server`: one of `grpc_target`, "" for all. Raises: KeyError when this mesh has no token for that identity.
        """
        assert self._identities is not None, "the mesh is not started"
        return self._identities.transport(identity, server or self.grpc_target, self._clock)

    async def _keep_certificates(self) -> None:
        """Renew certificates before they expire."""
        period_s = min(RENEWAL_PERIOD_S, self._options.certificate_life.total_seconds() / 10)
        while True:
            await asyncio.sleep(period_s)
            try:
                renewed = rotation.renew(self._data, life=self._options.certificate_life)
            except (OSError, ValueError) as error:
                self._log.error("certificates.not_renewed", error=str(error))
            else:
                if renewed:
                    self._log.info("certificates.renewed", names=renewed)

    def _prepare(self) -> MeshIdentities:
        make_data_directory(self._data)
        for folder in (*TELEMETRY_FOLDERS, RUN_FOLDER):
            make_private(self._data / folder)
        if self._lock_fd < 0:
            self._lock_fd = lock(self._data)
        narrow(self._data)
        run = self._data / RUN_FOLDER
        for of_the_last_mesh in run.glob("nodes-*.json"):
            of_the_last_mesh.unlink()
        write_atomically(run / SWITCHES_FILE, msgspec.json.encode(list(self._options.switches)))
        identities = self._identities = MeshIdentities(self._data, self._options)
        self._lines = CommandLines(self._data, self._options, identities)
        return identities

    async def _host(self, definitions: list[dict[str, Any]]) -> dict[str, Any]:
        """Host exactly these nodes in the process for scaled nodes; the nodes of the mesh's start are not affected."""
        if not self._is_ready:
            return {"error": "the mesh is still starting", "is_usage": False}
        hosted = [str(node["name"]) for node in definitions if str(node.get("name", "")).startswith(SCALED_PREFIX)]
        wanted = [node for node in definitions if node["name"] in hosted]
        name = f"kubelet/{SCALED}"
        async with self._restarting:
            if msgspec.json.encode(wanted) != (scaled_nodes(self._data) or b"[]"):
                write_atomically(self._data / SCALED_FILE, msgspec.json.encode(wanted))
                if (child := self.children.get(name)) is not None:
                    child.is_wanted = False
                    await child.stop()
                    del self.children[name]
                if wanted:
                    try:
                        await self._keeper.start_all([self._add(name, self._lines.scaled_kubelet())])
                    except MeshError as error:
                        return {"error": str(error), "is_usage": False}
                self._write_state()
        return {"hosted": hosted}

    def _add(self, name: str, arguments: list[str]) -> Child:
        """Register a process; its command line is `arguments` and the flags that every process gets."""
        servers = self.grpc_target if component_of(name) != "apiserver" else ""
        child = Child(
            name,
            [*arguments, *self._lines.shared_flags(name, servers)],
            log_file(self._data, name),
            ready_file(self._data, name),
            self._options.resource,
        )
        child.fork = self._nursery.spawn if self._nursery is not None else None
        if name not in self._options.without:
            self.children[name] = child
        return child

    def _modules(self) -> frozenset[str]:
        """Return the modules that the processes of the start run."""
        options = self._options
        has_nodes = options.nodes or options.definitions or (scaled_nodes(self._data) or b"[]") != b"[]"
        names = ["apiserver", "controllers", CLAIM_CONTROLLER, *(each.name for each in options.schedulers.processes())]
        names += ["kubelet"] if has_nodes else []
        return frozenset(MODULES[component_of(name)] for name in names if name not in options.without)

    async def _close_nursery(self) -> None:
        """End the process that the mesh was forked from: later lives are executed with the sources as they are then."""
        for child in self.children.values():
            child.fork = None
        if self._nursery is not None:
            nursery, self._nursery = self._nursery, None
            await nursery.close()

    async def _keep_state(self) -> None:
        """Write the state file every two seconds, and keep events, spans and logs within their total limit."""
        folders = [self._data / folder for folder in TELEMETRY_FOLDERS]
        trimmed_at = -TRIM_PERIOD_S
        while True:
            now = self._clock.now()
            if self._options.telemetry_mib_max and now - trimmed_at >= TRIM_PERIOD_S:
                trimmed_at = now
                if removed := trim(folders, self._options.telemetry_mib_max * MIB):
                    self._log.info("telemetry.trimmed", files=[path.name for path in removed])
            await asyncio.sleep(STATE_PERIOD_S)
            self._write_state()

    def _write_state(self) -> None:
        """Write `mesh.json`; a failed write is repeated in two seconds."""
        if self._lock_fd < 0:
            return
        try:
            write_atomically(self._data / STATE_FILE, msgspec.json.encode(self.status()), mode=0o600)
        except OSError as error:
            what = error.strerror or str(error)
            if what != self._state_error:
                self._log.error("state.not_written", error=what)
            self._state_error = what
        else:
            self._state_error = ""

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a command (`services.runtime.control`)."""
        match request:
            case {"verb": "status"}:
                return {"status": self.status()}
            case {"verb": "restart", "names": [*names]}:
                is_forced = request.get("at_once") is True
                return await self._restart_all([str(name) for name in names], at_once=is_forced)
            case {"verb": "break", **wanted}:
                return self._break(wanted)
            case {"verb": "host", "nodes": [*nodes]}:
                return await self._host([node for node in nodes if isinstance(node, dict)])
        return {"error": f"no request of a supervisor: {request.get('verb')}", "is_usage": True}

    def _break(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Begin or end a fault; the first call opens the supervisor's event log of faults."""
        if self._breaking.events is None:
            try:
                budget = self._options.telemetry
                life = new_incarnation(seeded_random(None))
                self._event_file = FileEventLog(self.events_dir, "supervisor", self._clock, life, budget)
            except OSError as error:
                return {"error": f"{self.events_dir}: {error.strerror}", "is_usage": False}
            self._breaking.events = self._event_file
        answer = self._breaking.perform(wanted)
        self._write_state()
        return answer

    async def _restart_all(self, names: Sequence[str], *, at_once: bool = False) -> dict[str, Any]:
        """Restart these processes one after the other, in the order of their start; all if `names` is empty."""
        if unknown := [name for name in names if name not in self.children]:
            return {
                "error": f"no process is called {unknown[0]}; there are {', '.join(self.children)}",
                "is_usage": True,
            }
        if not self._is_ready:
            return {"error": "the mesh is still starting", "is_usage": False}
        restarted: list[str] = []
        async with self._restarting:
            for name in [name for name in self.children if name in names or not names]:
                try:
                    await self.restart(name, at_once=at_once)
                except MeshError as error:
                    return {"error": str(error), "is_usage": False, "restarted": restarted}
                finally:
                    self._write_state()
                self._log.info("child.restarted", child=name)
                restarted.append(name)
        return {"restarted": restarted}
