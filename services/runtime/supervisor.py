"""A whole mesh as processes of this machine: started, watched, restarted, stopped.

Everything lives below one data directory: credentials, kubeconfig, the state file `mesh.json`, one
log, event log and span file a process. Children die with their supervisor, even if it is SIGKILLed, and
a lock on the directory says whether a mesh runs there, so no stale file can lie about it.
"""

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import structlog

from services.api.identity import ADMIN, SERVICE_ACCOUNT_PREFIX, Hosting, Identity
from services.client.rpc import RpcTransport
from services.client.tls import ClientTls, TlsFiles
from services.runtime import certificates, credentials, rotation
from services.runtime.child import POLL_S, Child
from services.runtime.components import (
    API_SERVER_AS_CLIENT,
    CLAIM_CONTROLLER,
    SIMULATOR_API,
    block_sizes,
    component_of,
    driver_name,
    drivers_of,
    plugin_name,
    plugins_of,
)
from services.runtime.config import EXIT_IO, MeshError
from services.runtime.control import ControlServer
from services.runtime.faults.breaking import Breaking
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
from services.runtime.roles import read_role
from services.telemetry.eventlog import FileEventLog, new_incarnation
from services.telemetry.pieces import MIB, make_private, trim

READY_MAX_S = 60.0
READY_PER_NODE_S = 0.02
KUBELET_PORTS = range(20_000, 32_768)
STATE_PERIOD_S = 2.0
RENEWAL_PERIOD_S = 60.0
"""How often certificates are looked at, or every tenth of their life."""
NODE_PREFIX = "node-"
"""What the names of nodes that are not defined one by one begin with."""
SORTS, PROCESSES_TYPICAL = len(TELEMETRY_FOLDERS), 8
TRIM_PERIOD_S = 30.0
"""How often it is looked whether events, spans and logs still fit into what they may take together."""
CLIENT_CONTROLLERS = ("clusterrole-aggregation-controller", "root-ca-cert-publisher", "service-account-controller")
"""Controllers that `*` does not mean: what they keep is for clients from outside."""


SCALED = "scaled"
"""The host process of the nodes that `keplab scale` makes while the mesh runs."""
SCALED_PREFIX = "node-00"
"""How their names begin: a token says which nodes its host may act for before they are there. With a serial number of
six digits these are ten thousand, and none of those that a mesh is started with."""
SCALED_FILE = f"kubelet/{SCALED}-nodes.json"
"""What they are, for the next time that the mesh is started."""


class Supervisor:
    """Runs a mesh. `start` and `stop` once each; the rest in between."""

    def __init__(self, options: MeshOptions, lock_fd: int = -1) -> None:
        """`lock_fd`: what holds the directory already, as `lock` returned it."""
        self._options = options
        self.data_dir = self._data = options.data_dir.absolute()
        """The directory it runs on."""
        self.kubeconfig = self._data / credentials.KUBECONFIG_FILE
        """The kubeconfig of the administrator."""
        self.events_dir, self.spans_dir = self._data / "events", self._data / "spans"
        """Where the processes' event logs and span files are."""
        self.sockets_dir = self._data / SOCKETS_FOLDER
        """Where the nodes' sockets are, a directory a node."""
        self._page = ""
        self._clock = RealClock()
        self._random = seeded_random(None)
        self._log = structlog.get_logger()
        self.children: dict[str, Child] = {}
        """The processes by name, in the order they were started."""
        self._lock_fd = lock_fd
        self._tasks: list[asyncio.Task[None]] = []
        self._credentials: credentials.Credentials | None = None
        self._authority: certificates.Authority | None = None
        self._serving: certificates.Pair | None = None
        self._token_files: dict[str, str] = {}
        self._is_ready = False
        self._state_error = ""
        self._restarting = asyncio.Lock()
        self._breaking = Breaking(self, self._clock, has_files=options.has_faults, component_of=component_of)
        self._event_file: FileEventLog | None = None
        self._control: ControlServer | None = None

    async def start(self) -> None:
        """Return when every process is ready; after an error or a cancellation nothing is left running. Raises:
        AlreadyRunning; MeshError with the line of the process that could not start.
        """
        try:
            self._prepare()
            self._control = ControlServer(self._data, self._answer)
            await self._control.start()
            self._tasks.append(asyncio.create_task(self._keep_certificates()))
            shared = await self._start_etcd() if self._options.engine == "etcd" else []
            names = ["apiserver", *(f"apiserver-{number}" for number in range(2, self._options.apiservers + 1))]
            servers = [self._add(name, [*self._apiserver_arguments(name), *shared]) for name in names]
            await self._start_all(servers)
            for each in servers:
                # From now on restarts must find the same ports: clients hold on to them.
                each.arguments += ["--grpc-port", str(each.ports["grpc"]), "--rest-port", str(each.ports["rest"])]
            assert self._credentials is not None
            content = credentials.kubeconfig(self.rest_urls, self._credentials.admin_token, self.authority)
            write_atomically(self.kubeconfig, content, mode=0o600)
            if self._options.serves_clients and self._authority is not None:
                place = self._data / credentials.CLIENTS_FOLDER
                credentials.put_client_kubeconfigs(place, self.rest_url, self._authority)
            rest = [
                self._add(each.name, [*each.arguments, *self._credentials_of("scheduler")])
                for each in self._options.schedulers.processes()
            ]
            managers = ("controllers", CLAIM_CONTROLLER)
            rest += [self._add(name, self._credentials_of(name)) for name in managers]
            if self._options.serves_clients and "controllers" in self.children:
                controllers = ("*", *CLIENT_CONTROLLERS)
                self.children["controllers"].arguments += [t for name in controllers for t in ("--controllers", name)]
            rest += [self._add(f"kubelet/{host}", arguments) for host, arguments in self._kubelet_arguments()]
            if (scaled := self._scaled_nodes()) and scaled != b"[]":
                rest.append(self._add(f"kubelet/{SCALED}", self._scaled_arguments()))
            rest += [self._add(name, arguments) for name, arguments in self._plugin_arguments()]
            rest += [self._add(name, arguments) for name, arguments in self._driver_arguments()]
            await self._start_all([child for child in rest if child.name not in self._options.without])
            if self._options.simulator_api is not None:
                await self._start_all(
                    [self._add(SIMULATOR_API, self._simulator_arguments(self._options.simulator_api))]
                )
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
        """Send a signal. A process that dies of it comes back after the back-off, or after `down_s`. Raises: KeyError
        when there is no such process; MeshError when it is not running.
        """
        child = self.child(name)
        if not child.pid:
            raise MeshError(f"{name} is not running")
        if down_s is not None:
            child.next_down_s = down_s
        os.kill(child.pid, number)

    def faults_file_of(self, name: str) -> Path:
        """Return the file that says what is wrong with a process's machine (`services.runtime.machine`)."""
        return self._data / RUN_FOLDER / f"{name.replace('/', '_')}.faults"

    async def restart(self, name: str, switches: Sequence[str] = (), *, at_once: bool = False) -> None:
        """Stop one process in good order and return when its successor is ready. `switches`: NAME=VALUE, over those it
        had, for it and its later lives. `at_once`: stop it by force, so that it does nothing more. Raises: KeyError,
        MeshError.
        """
        child = self.child(name)
        await child.stop(at_once=at_once)
        child.arguments += [flag for assignment in switches for flag in ("--set", assignment)]
        child.forgive()
        await self._start_all([child])
        child.restarts += 1

    async def _start_etcd(self) -> list[str]:
        """Return the flags by which API servers reach etcd; without URLs of one, when one of our own is ready. Raises:
        MeshError, OSError."""
        if self._options.etcd_servers:
            return ["--etcd-servers", self._options.etcd_servers]
        # Only here: no other engine needs it.
        from services.runtime.etcd_members import make_members

        members = make_members(self._data, self._options.etcd_members, _free_port)
        self.children |= {child.name: child for child in members.children}
        await self._start_all(members.children)
        return ["--etcd-servers", members.servers, *members.flags]

    def _processes_of(self, component: str) -> list[Child]:
        return [child for child in self.children.values() if component_of(child.name) == component]

    def child(self, name: str) -> Child:
        """Return one process. Raises: KeyError when there is no such process."""
        if name not in self.children:
            raise KeyError(f"no process is called {name}; there are {', '.join(self.children)}")
        return self.children[name]

    @property
    def grpc_target(self) -> str:
        """HOST:PORT of the gRPC server; of several with commas between."""
        return ",".join(f"127.0.0.1:{each.ports['grpc']}" for each in self._processes_of("apiserver"))

    @property
    def authority(self) -> Path:
        """The certificate of the authority that signed the API server's."""
        assert self._authority is not None, "the mesh is not started"
        return self._authority.path

    @property
    def rest_url(self) -> str:
        """URL of the REST server, for kubectl."""
        return self.rest_urls[0]

    @property
    def rest_urls(self) -> list[str]:
        """URLs of the REST servers, one an API server."""
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
            "token_files": self._token_files,
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
        """Have the status say where the live page is that is served beside the mesh."""
        self._page = address
        self._write_state()

    def client_transport(self, identity: str = "", server: str = "") -> RpcTransport:
        """Return a new connection as one identity, "" for the administrator; close it when done. `server`: one of
        `grpc_target`, "" for all. Raises: KeyError when this mesh has no token for that identity.
        """
        assert self._credentials is not None, "the mesh is not started"
        identity = identity or ADMIN.user
        tokens = {identity: credentials.token_of(self._credentials, identity)}
        tls = None
        if self._options.security == "strict":
            tls = ClientTls(TlsFiles(*self._client_pair("admin", ADMIN), self.authority))
        return RpcTransport(server or self.grpc_target, tokens, clock=self._clock, random=seeded_random(None), tls=tls)

    def _client_pair(self, process: str, identity: Identity) -> tuple[Path, Path]:
        """Return certificate and key of a process."""
        assert self._authority is not None, "the mesh is not started"
        pair = credentials.client_pair(self._authority, process, identity)
        return pair.certificate, pair.key

    def _connection(self, process: str, identity: Identity | None = None) -> list[str]:
        """Return the flags with which a process connects in the profile of this mesh; `identity`: whom its certificate
        names, None for the process's own."""
        if self._options.security != "strict":
            return []
        assert self._credentials is not None
        certificate, key = self._client_pair(process, identity or self._credentials.users[process])
        return [
            "--security", "strict",
            "--client-certificate", str(certificate),
            "--client-key", str(key),
            "--certificate-authority", str(self.authority),
        ]  # fmt: skip

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

    def _prepare(self) -> None:
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
        try:
            users = [read_role(path).user for path in self._options.roles]
        except ValueError as error:
            raise MeshError(str(error)) from None
        place, others = self._data / "credentials", (*self._options.identities, *map(Identity, users))
        self._credentials = credentials.make(place, hosts=self._hosting(), random=seeded_random(None), others=others)
        self._authority = certificates.authority(place, life=self._options.certificate_life)
        self._serving = self._authority.server("apiserver")
        self._kubelet_serving = self._authority.server("kubelet")
        self._kubelet_client = self._authority.client("apiserver-kubelet-client", API_SERVER_AS_CLIENT)
        for user in users:
            process = user.removeprefix(SERVICE_ACCOUNT_PREFIX).replace(":", "_")
            self._token_files[user] = str(credentials.put(self._credentials, process, user))

    def _credentials_of(self, process: str) -> list[str]:
        """Return the flags that say who a process is."""
        assert self._credentials is not None
        return ["--token-file", str(self._credentials.of(process)), *self._connection(process)]

    def _simulator_arguments(self, given: Sequence[str]) -> list[str]:
        """Return the flags of the simulator API: a client as the administrator is one, which restarts schedulers."""
        schedulers = [each.name for each in self._options.schedulers.processes() if each.config]
        restarted = [flag for name in schedulers for flag in ("--scheduler", name)]
        return [*given, *self._credentials_of("admin"), "--mesh-dir", str(self._data), *restarted]

    def _apiserver_arguments(self, name: str) -> list[str]:
        assert self._credentials is not None
        assert self._serving is not None
        return [
            "--engine", self._options.engine,
            "--data-dir", str(self._data / name),
            "--token-file", str(self._credentials.server),
            "--grpc-port", str(self._options.grpc_port if name == "apiserver" else 0),
            "--rest-port", str(self._options.rest_port if name == "apiserver" else 0),
            "--tls-cert-file", str(self._serving.certificate),
            "--tls-private-key-file", str(self._serving.key),
            "--client-ca-file", str(self.authority),
            "--security", self._options.security,
            *self._client_arguments(),
            "--kubelet-client-certificate", str(self._kubelet_client.certificate),
            "--kubelet-client-key", str(self._kubelet_client.key),
            "--kubelet-certificate-authority", str(self.authority),
            *(text for path in self._options.roles for text in ("--role", str(path.absolute()))),
        ]  # fmt: skip

    def _client_arguments(self) -> list[str]:
        if not self._options.serves_clients:
            return []
        flags = {
            "--authorization-mode": "RBAC",
            "--enable-admission-plugins": "ServiceAccount",
            "--service-account-signing-key-file": str(certificates.signing_key(self._data / "credentials")),
        }
        return [text for flag in flags.items() for text in flag]

    def _dealt(self) -> list[tuple[str, tuple[int, int]]]:
        """Return (host, (first node, number of nodes)): nodes dealt out in blocks."""
        sizes = block_sizes(self._options.nodes, self._options.hosts)
        return [(f"h{i}", (sum(sizes[:i]), size)) for i, size in enumerate(sizes)]

    def _hosting(self) -> dict[str, Hosting]:
        """Return which nodes each kubelet host may act for: those that it is started with."""
        options = self._options
        names = {host: [str(node["name"]) for node in nodes] for host, nodes in options.definitions.items()} or {
            host: [f"{NODE_PREFIX}{number}" for number in range(first, first + count)]
            for host, (first, count) in self._dealt()
        }
        hosting = {host: Hosting(frozenset(own), stages=options.stages) for host, own in names.items()}
        return {**hosting, SCALED: Hosting(node_prefix=SCALED_PREFIX, stages=options.stages)}

    def _scaled_nodes(self) -> bytes:
        """Return the definitions of the nodes that `keplab scale` made, as JSON; b"" where there never were any."""
        try:
            return (self._data / SCALED_FILE).read_bytes()
        except FileNotFoundError:
            return b""

    def _scaled_arguments(self) -> list[str]:
        """Return how the process is started that hosts nodes that `keplab scale` made."""
        return self._kubelet_flags(SCALED, ["--nodes-file", str(self._data / SCALED_FILE)])

    async def _host(self, definitions: list[dict[str, Any]]) -> dict[str, Any]:
        """Have one process host exactly these nodes from now on, besides those that the mesh was started with."""
        if not self._is_ready:
            return {"error": "the mesh is still starting", "is_usage": False}
        hosted = [str(node["name"]) for node in definitions if str(node.get("name", "")).startswith(SCALED_PREFIX)]
        wanted = [node for node in definitions if node["name"] in hosted]
        name = f"kubelet/{SCALED}"
        async with self._restarting:
            if msgspec.json.encode(wanted) != (self._scaled_nodes() or b"[]"):
                write_atomically(self._data / SCALED_FILE, msgspec.json.encode(wanted))
                if (child := self.children.get(name)) is not None:
                    child.is_wanted = False
                    await child.stop()
                    del self.children[name]
                if wanted:
                    try:
                        await self._start_all([self._add(name, self._scaled_arguments())])
                    except MeshError as error:
                        return {"error": str(error), "is_usage": False}
                self._write_state()
        return {"hosted": hosted}

    def _kubelet_arguments(self) -> list[tuple[str, list[str]]]:
        found: list[tuple[str, list[str]]] = []
        if self._options.definitions:
            for host, definitions in self._options.definitions.items():
                path = self._data / RUN_FOLDER / f"nodes-{host}.json"
                write_atomically(path, msgspec.json.encode(list(definitions)))
                found.append((host, ["--nodes-file", str(path)]))
        else:
            for host, (first, count) in self._dealt():
                found.append((host, ["--nodes", str(count), "--first", str(first), "--name-prefix", NODE_PREFIX]))
        return [(host, self._kubelet_flags(host, arguments)) for host, arguments in found]

    def _kubelet_flags(self, host: str, arguments: list[str]) -> list[str]:
        # A node says in its status where its kubelet serves logs, so a kubelet's port is known before it starts.
        return [
            *arguments, *self._credentials_of(f"kubelet/{host}"), "--data-dir", str(self._data / "kubelet" / host),
            "--health-port", "0", "--sockets-dir", str(self.sockets_dir),
            "--port", str(_free_port()), "--tls-cert-file", str(self._kubelet_serving.certificate),
            "--tls-private-key-file", str(self._kubelet_serving.key), "--client-ca-file", str(self.authority),
        ]  # fmt: skip

    def _plugin_arguments(self) -> list[tuple[str, list[str]]]:
        """Return the processes of the device plugins that node definitions ask for, by name."""
        return [
            (
                plugin_name(str(node["name"]), str(plugin["resource"])),
                [
                    "--node", str(node["name"]), "--sockets-dir", str(self.sockets_dir),
                    "--definition", msgspec.json.encode(plugin).decode(),
                ],
            )
            for definitions in self._options.definitions.values()
            for node in definitions
            for plugin in plugins_of(node)
        ]  # fmt: skip

    def _driver_arguments(self) -> list[tuple[str, list[str]]]:
        """Return the processes of the DRA drivers that node definitions ask for, by name."""
        found: list[tuple[str, list[str]]] = []
        assert self._credentials is not None
        for definitions in self._options.definitions.values():
            for node in definitions:
                for driver, definition in drivers_of(node):
                    name = driver_name(str(node["name"]), driver)
                    arguments = ["--node", str(node["name"]), "--definition", definition]
                    arguments += ["--sockets-dir", str(self.sockets_dir), "--data-dir", str(self._data / name)]
                    token_file = credentials.put_driver(self._credentials, name, driver, str(node["name"]))
                    arguments += ["--token-file", str(token_file)]
                    arguments += self._connection(name, credentials.driver_host(name))
                    found.append((name, arguments))
        return found

    def _add(self, name: str, arguments: list[str]) -> Child:
        """Register a process; its full command line is this plus what every process gets."""
        plain = name.replace("/", "_")
        ready_file = self._data / RUN_FOLDER / f"{plain}.ready"
        common = [
            "--name", name,
            "--events-dir", str(self.events_dir),
            "--spans-dir", str(self.spans_dir),
            "--ready-file", str(ready_file),
            "--log-level", self._options.log_level,
            "--log-file", str(self._data / "logs" / f"{plain}.log"),
            "--telemetry-maxsize", str(self._piece_mib()),
            "--telemetry-maxbackup", str(self._options.telemetry.kept),
            "--die-with-parent",
        ]  # fmt: skip
        if component_of(name) != "apiserver":
            common += ["--server", self.grpc_target]
        if self._options.has_faults:
            common += ["--faults-file", str(self.faults_file_of(name))]
        if self._options.seed is not None:
            common += ["--seed", str(self._options.seed)]
        for assignment in self._options.switches:
            common += ["--set", assignment]
        extra = [
            flag for key in dict.fromkeys((component_of(name), name)) for flag in self._options.arguments.get(key, ())
        ]
        log = self._data / "logs" / f"{plain}.log"
        child = Child(name, [*arguments, *common, *extra], log, ready_file, self._options.resource)
        if name not in self._options.without:
            self.children[name] = child
        return child

    def _piece_mib(self) -> int:
        """Return at how many MiB a file goes on in a new one, so that the open ones take half of what all may."""
        mib, limit = self._options.telemetry.piece_bytes // MIB, self._options.telemetry_mib_max
        return min(mib, max(1, limit // (2 * SORTS * PROCESSES_TYPICAL))) if mib and limit else mib

    async def _start_all(self, children: Sequence[Child]) -> None:
        """Return when all of them are ready. Raises: MeshError as soon as one cannot be."""
        for child in children:
            child.is_wanted = True
            child.is_ready = False
            child.keeper = asyncio.create_task(self._keep(child))
        nodes = self._options.nodes + sum(len(d) for d in self._options.definitions.values())
        limit_s = READY_MAX_S + nodes * READY_PER_NODE_S
        deadline = self._clock.now() + limit_s
        while waiting := [child for child in children if not child.is_ready]:
            for child in waiting:
                if child.failed_for_good or child.is_crash_looping:
                    raise MeshError(child.last_error or f"{child.name} did not start; see {child.log}")
                if child.keeper is not None and child.keeper.done() and not child.keeper.cancelled():
                    child.keeper.result()
            if self._clock.now() > deadline:
                names = ", ".join(child.name for child in waiting)
                raise MeshError(f"{names} not ready within {limit_s:g} s; see {waiting[0].log}")
            await asyncio.sleep(POLL_S)

    async def _keep(self, child: Child) -> None:
        """Run the process again and again while it is wanted and P14 allows."""
        while child.is_wanted:
            code = await self._live(child)
            child.is_ready = False
            if not child.is_wanted:
                return
            if code >= 0:
                child.exit_codes.append(code)
            delay_s = child.delay_s(code, self._clock.now())
            # A mesh that cannot start says so at once.
            if delay_s is None or (child.is_crash_looping and not self._is_ready):
                child.failed_for_good = True
                if self._is_ready:  # before that, `start` reports it
                    self._log.error("child.given_up", child=child.name, error=child.last_error)
                self._write_state()
                return
            child.next_try_at = self._clock.now() + delay_s
            event = "child.crash_loop" if child.is_crash_looping else "child.restarting"
            self._log.warning(event, child=child.name, error=child.last_error, after_s=delay_s)
            self._write_state()
            await asyncio.sleep(delay_s)
            child.restarts += 1

    async def _live(self, child: Child) -> int:
        """Run the process once; return how it ended, and have its last error say why."""
        try:
            await child.spawn(self._clock)
            assert child.process is not None
            watcher = asyncio.create_task(self._note_when_ready(child))
            try:
                code = await child.process.wait()
            finally:
                watcher.cancel()
        except OSError as error:
            child.last_error = f"{child.name} cannot be started: {error.strerror or error}"
            return EXIT_IO
        self._breaking.ended(child.name)
        if child.is_wanted:
            child.last_error = child.why(code)
        return code

    async def _note_when_ready(self, child: Child) -> None:
        await child.wait_until_ready()
        if self._is_ready:
            self._write_state()

    async def _keep_state(self) -> None:
        """Write what goes on every two seconds, and keep events, spans and logs within what they may take."""
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
        """Write `mesh.json`; a disk that refuses is tried again in two seconds."""
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
        """Cause a fault, or end one; the first has the supervisor keep an event log of them."""
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
        """Restart these one after the other, all when none is named, in the order in which they were started."""
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


def _free_port() -> int:
    """Return a loopback port that no process listens on at this moment, of those that the kernel gives to no outgoing
    connection by itself: it is still free when the process that shall listen on it has started."""
    while True:
        port = KUBELET_PORTS[secrets.randbelow(len(KUBELET_PORTS))]
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
