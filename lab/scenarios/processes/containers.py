"""The containers of a compose project, and faults injected through the engine's own client: kill, pause,
disconnect.

Containers are found by compose's labels, so compose itself, its files and its version do not matter.
"""

import asyncio
import io
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.scenarios.mesh import NotPossible
from services.runtime.components import SERVICES
from services.runtime.config import MeshError

PROJECT, SERVICE = "com.docker.compose.project", "com.docker.compose.service"
GRPC_PORT = "7443/tcp"
COMMAND_MAX_S = 60.0
OWNER = 10001
"""Owner (uid) of all files in the volumes (Dockerfile)."""
KILLED_S = 0.2
"""Default time for which a killed container stays down, in seconds."""


@dataclass(frozen=True)
class Container:
    """One container. `name`: as a scenario names it, `scheduler` or `kubelet/3f2a…` by its host name."""

    id: str
    name: str
    service: str
    networks: tuple[str, ...]
    is_running: bool = True


class Containers:
    """The containers of one project. `docker`: the engine's client."""

    def __init__(self, project: str, docker: str = "docker") -> None:
        self.project, self._docker = project, docker
        self._cut: dict[str, tuple[str, ...]] = {}

    def run(self, *words: str, given: bytes = b"") -> str:
        """Run the engine's client and return its output; `given`: its standard input. Raises: MeshError with the
        last line of its output.
        """
        try:
            done = subprocess.run([self._docker, *words], capture_output=True, timeout=COMMAND_MAX_S, input=given)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MeshError(f"{self._docker} {words[0]}: {error}") from None
        if done.returncode:
            message = (done.stderr.decode(errors="replace").strip() or f"exit {done.returncode}").splitlines()[-1]
            raise MeshError(f"{self._docker} {words[0]}: {message}")
        return done.stdout.decode(errors="replace").strip()

    def _inspect(self) -> list[dict[str, Any]]:
        ids = self.run("ps", "-aq", "--filter", f"label={PROJECT}={self.project}").split()
        return list(json.loads(self.run("inspect", *ids))) if ids else []

    def by_name(self) -> dict[str, Container]:
        """Return the components' containers by name. Raises: MeshError when the project has none."""
        containers: dict[str, Container] = {}
        for inspection in self._inspect():
            service = inspection["Config"]["Labels"].get(SERVICE, "")
            if service not in SERVICES or inspection["Config"]["Labels"].get("com.docker.compose.oneoff") == "True":
                continue
            name = f"kubelet/{inspection['Config']['Hostname']}" if service == "kubelet" else service
            networks, state = tuple(inspection["NetworkSettings"]["Networks"]), inspection.get("State") or {}
            containers[name] = Container(inspection["Id"], name, service, networks, state.get("Running", True))
        if not containers:
            raise MeshError(
                f"no container belongs to the compose project {self.project!r}; `docker compose ls` lists the projects"
            )
        return containers

    def setting(self, service: str, variable: str) -> str:
        """Return an environment variable of a service's container; empty if it is not set."""
        for each in self._inspect():
            if each["Config"]["Labels"].get(SERVICE) == service:
                words = (word.partition("=") for word in each["Config"]["Env"] or ())
                return next((value for name, _, value in words if name == variable), "")
        return ""

    def server(self) -> str:
        """Return the address at which the API server's gRPC port is published. Raises: MeshError."""
        container = self.by_name().get("apiserver")
        published = self.run("port", container.id, GRPC_PORT).splitlines() if container else []
        if not published:
            raise MeshError(f"project {self.project!r} publishes no port {GRPC_PORT} of a container apiserver")
        return published[0]

    def healthy(self) -> set[str]:
        """Return the ids of the containers that are healthy."""
        states = {each["Id"]: each.get("State") or {} for each in self._inspect()}
        return {each for each, state in states.items() if (state.get("Health") or {}).get("Status") == "healthy"}

    def _setup(self) -> dict[str, Any]:
        """Return the container that has all volumes of credentials, and that of switches. Raises: MeshError."""
        for each in self._inspect():
            labels = each["Config"]["Labels"]
            if labels.get(SERVICE) == "setup" and labels.get("com.docker.compose.oneoff") != "True":
                return each
        raise MeshError(f"project {self.project!r} has no container setup, whose volumes have the credentials")

    def has_volume(self, path: str) -> bool:
        """Return whether `setup` has a volume at this path. Raises: MeshError."""
        return any(mount.get("Destination") == path for mount in self._setup().get("Mounts") or ())

    def copy(self, path: str, target: Path) -> None:
        """Copy a folder out of `setup`. Raises: MeshError."""
        self.run("cp", f"{self._setup()['Id']}:{path}/.", str(target))

    def texts(self, path: str) -> dict[str, str]:
        """Return the files of a folder of `setup` by name. Raises: MeshError."""
        with tempfile.TemporaryDirectory(prefix="keplab-texts-") as folder:
            self.copy(path, Path(folder))
            return {each.name: each.read_text() for each in sorted(Path(folder).iterdir()) if each.is_file()}

    def write(self, path: str, texts: Mapping[str, str]) -> None:
        """Put files into a folder of `setup` that only its owner may write to. Raises: MeshError."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for name, text in texts.items():
                header = tarfile.TarInfo(name)
                header.size, header.mode, header.uid, header.gid = len(text.encode()), 0o600, OWNER, OWNER
                archive.addfile(header, io.BytesIO(text.encode()))
        self.run("cp", "-", f"{self._setup()['Id']}:{path}", given=packed.getvalue())

    async def _do(self, *words: str) -> None:
        try:
            await asyncio.to_thread(self.run, *words)
        except MeshError as error:
            raise NotPossible(str(error)) from None

    async def kill(self, container: Container, down_s: float | None) -> None:
        """Send SIGKILL, and start the container after `down_s`: the engine's restart policy treats a manual kill as
        a stop.
        """
        await self._do("kill", "-s", "KILL", container.id)
        await asyncio.sleep(KILLED_S if down_s is None else down_s)
        await self._do("start", container.id)

    async def restart(self, container: Container) -> None:
        """Send SIGTERM, and start the container again."""
        await self._do("restart", container.id)

    async def pause(self, container: Container, duration_s: float) -> None:
        """Freeze all processes of the container for `duration_s`."""
        await self._do("pause", container.id)
        try:
            await asyncio.sleep(duration_s)
        finally:
            await self._do("unpause", container.id)

    def cut(self, container: Container, *, is_cut: bool) -> None:
        """Disconnect the container from its networks, or reconnect it under its service's name; return when that is
        done. Raises: MeshError.
        """
        if is_cut and container.id not in self._cut:
            self._cut[container.id] = container.networks
            for network in container.networks:
                self.run("network", "disconnect", network, container.id)
        elif not is_cut:
            for network in self._cut.pop(container.id, ()):
                self.run("network", "connect", "--alias", container.service, network, container.id)

    def heal(self, containers: Sequence[Container]) -> None:
        """Reconnect all disconnected containers. Raises: MeshError."""
        for each in containers:
            self.cut(each, is_cut=False)
