"""Command line arguments of each process of a mesh."""

import secrets
import socket
from collections.abc import Sequence
from pathlib import Path

import msgspec

from services.runtime import certificates
from services.runtime.components import component_of, driver_name, drivers_of, plugin_name, plugins_of
from services.runtime.mesh.hosts import NODE_PREFIX, SCALED, SCALED_FILE, node_blocks
from services.runtime.mesh.identities import MeshIdentities
from services.runtime.mesh.options import TELEMETRY_FOLDERS, MeshOptions
from services.runtime.mesh_directory import RUN_FOLDER, SOCKETS_FOLDER
from services.runtime.real import write_atomically
from services.telemetry.pieces import MIB

KUBELET_PORTS = range(20_000, 32_768)
SORTS, PROCESSES_TYPICAL = len(TELEMETRY_FOLDERS), 8


class CommandLines:
    """Composes the arguments of processes, and writes the files that arguments name. Has no state.

    Each process also gets the arguments that `shared_flags` returns.
    """

    def __init__(self, data: Path, options: MeshOptions, identities: MeshIdentities) -> None:
        self._data, self._options, self._identities = data, options, identities

    def simulator(self, given: Sequence[str]) -> list[str]:
        """Return the flags of the simulator API; it acts as administrator and restarts the configured schedulers."""
        schedulers = [each.name for each in self._options.schedulers.processes() if each.config]
        restarted = [flag for name in schedulers for flag in ("--scheduler", name)]
        return [*given, *self._identities.flags_of("admin"), "--mesh-dir", str(self._data), *restarted]

    def apiserver(self, name: str) -> list[str]:
        """Return the flags of one API server; only the first gets fixed ports."""
        identities = self._identities
        return [
            "--engine", self._options.engine,
            "--data-dir", str(self._data / name),
            "--token-file", str(identities.credentials.server),
            "--grpc-port", str(self._options.grpc_port if name == "apiserver" else 0),
            "--rest-port", str(self._options.rest_port if name == "apiserver" else 0),
            "--tls-cert-file", str(identities.serving.certificate),
            "--tls-private-key-file", str(identities.serving.key),
            "--client-ca-file", str(identities.authority.path),
            "--security", self._options.security,
            *self._client_arguments(),
            "--kubelet-client-certificate", str(identities.kubelet_client.certificate),
            "--kubelet-client-key", str(identities.kubelet_client.key),
            "--kubelet-certificate-authority", str(identities.authority.path),
            *(text for path in self._options.roles for text in ("--role", str(path.absolute()))),
        ]  # fmt: skip

    def _client_arguments(self) -> list[str]:
        if not self._options.serves_clients:
            return []
        flags = {
            "--authorization-mode": "RBAC",
            "--enable-admission-plugins": "ServiceAccount",
            "--service-account-signing-key-file": str(certificates.signing_key(self._identities.folder)),
        }
        return [text for flag in flags.items() for text in flag]

    def schedulers(self) -> list[tuple[str, list[str]]]:
        """Return (name, flags) of each scheduler."""
        flags = self._identities.flags_of("scheduler")
        return [(each.name, [*each.arguments, *flags]) for each in self._options.schedulers.processes()]

    def kubelets(self) -> list[tuple[str, list[str]]]:
        """Return (name, flags) of each kubelet process for the nodes of the mesh's start. Raises: OSError."""
        processes: list[tuple[str, list[str]]] = []
        if self._options.definitions:
            for host, definitions in self._options.definitions.items():
                path = self._data / RUN_FOLDER / f"nodes-{host}.json"
                write_atomically(path, msgspec.json.encode(list(definitions)))
                processes.append((host, ["--nodes-file", str(path)]))
        else:
            for host, (first, count) in node_blocks(self._options):
                processes.append((host, ["--nodes", str(count), "--first", str(first), "--name-prefix", NODE_PREFIX]))
        return [(f"kubelet/{host}", self._kubelet_flags(host, arguments)) for host, arguments in processes]

    def scaled_kubelet(self) -> list[str]:
        """Return the flags of the kubelet process that hosts the nodes of `keplab scale`."""
        return self._kubelet_flags(SCALED, ["--nodes-file", str(self._data / SCALED_FILE)])

    def _kubelet_flags(self, host: str, arguments: list[str]) -> list[str]:
        # The Node's status has the port where its kubelet serves logs, so the port is chosen before the start.
        serving = self._identities.kubelet_serving
        return [
            *arguments, *self._identities.flags_of(f"kubelet/{host}"), "--data-dir", str(self._data / "kubelet" / host),
            "--health-port", "0", "--sockets-dir", str(self._data / SOCKETS_FOLDER),
            "--port", str(free_port()), "--tls-cert-file", str(serving.certificate),
            "--tls-private-key-file", str(serving.key), "--client-ca-file", str(self._identities.authority.path),
        ]  # fmt: skip

    def device_plugins(self) -> list[tuple[str, list[str]]]:
        """Return (name, flags) of each device plugin in the node definitions."""
        return [
            (
                plugin_name(str(node["name"]), str(plugin["resource"])),
                [
                    "--node", str(node["name"]), "--sockets-dir", str(self._data / SOCKETS_FOLDER),
                    "--definition", msgspec.json.encode(plugin).decode(),
                ],
            )
            for definitions in self._options.definitions.values()
            for node in definitions
            for plugin in plugins_of(node)
        ]  # fmt: skip

    def drivers(self) -> list[tuple[str, list[str]]]:
        """Return (name, flags) of each DRA driver in the node definitions. Raises: OSError."""
        processes: list[tuple[str, list[str]]] = []
        for definitions in self._options.definitions.values():
            for node in definitions:
                for driver, definition in drivers_of(node):
                    name = driver_name(str(node["name"]), driver)
                    arguments = ["--node", str(node["name"]), "--definition", definition]
                    arguments += ["--sockets-dir", str(self._data / SOCKETS_FOLDER)]
                    arguments += ["--data-dir", str(self._data / name)]
                    arguments += self._identities.driver_flags(name, driver, str(node["name"]))
                    processes.append((name, arguments))
        return processes

    def shared_flags(self, name: str, servers: str) -> list[str]:
        """Return the flags that every process gets after its own.

        `servers`: HOST:PORT of the gRPC servers, comma-separated; empty for the API servers themselves.
        """
        options = self._options
        arguments = [
            "--name", name,
            "--events-dir", str(self._data / "events"),
            "--spans-dir", str(self._data / "spans"),
            "--ready-file", str(ready_file(self._data, name)),
            "--log-level", options.log_level,
            "--log-file", str(log_file(self._data, name)),
            "--telemetry-maxsize", str(self._piece_mib()),
            "--telemetry-maxbackup", str(options.telemetry.kept),
            "--die-with-parent",
        ]  # fmt: skip
        if servers:
            arguments += ["--server", servers]
        if options.has_faults:
            arguments += ["--faults-file", str(faults_file(self._data, name))]
        if options.seed is not None:
            arguments += ["--seed", str(options.seed)]
        for assignment in options.switches:
            arguments += ["--set", assignment]
        extra = [flag for key in dict.fromkeys((component_of(name), name)) for flag in options.arguments.get(key, ())]
        return [*arguments, *extra]

    def _piece_mib(self) -> int:
        """Return the maximum size of a telemetry file in MiB, so that open files take half of the total limit."""
        mib, limit = self._options.telemetry.piece_bytes // MIB, self._options.telemetry_mib_max
        return min(mib, max(1, limit // (2 * SORTS * PROCESSES_TYPICAL))) if mib and limit else mib


def ready_file(data: Path, name: str) -> Path:
    """Return the path of the file to which a process writes its ports once it is ready."""
    return data / RUN_FOLDER / f"{_plain(name)}.ready"


def log_file(data: Path, name: str) -> Path:
    """Return the path of a process's log."""
    return data / "logs" / f"{_plain(name)}.log"


def faults_file(data: Path, name: str) -> Path:
    """Return the path of the file with the faults of a process's machine (`services.runtime.machine`)."""
    return data / RUN_FOLDER / f"{_plain(name)}.faults"


def _plain(name: str) -> str:
    return name.replace("/", "_")


def free_port() -> int:
    """Return a loopback port on which no process listens.

    It lies outside the kernel's range for outgoing connections, so that it is still free when its process starts.
    """
    while True:
        port = KUBELET_PORTS[secrets.randbelow(len(KUBELET_PORTS))]
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
