"""The containers of a compose project, broken through the engine's own client: killed, paused, cut off.

Containers are found by compose's labels, so compose itself, its files and its version do not matter.
"""

import asyncio
import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.runtime.config import MeshError
from services.scenarios.mesh import NotPossible

PROJECT, SERVICE = "com.docker.compose.project", "com.docker.compose.service"
GRPC_PORT = "7443/tcp"
COMMAND_MAX_S = 60.0
KILLED_S = 0.2
"""How long a container that was killed stays away, unless the scenario says otherwise."""
COMPONENTS = ("apiserver", "apiserver-2", "scheduler", "controllers", "claim-controller", "kubelet")


@dataclass(frozen=True)
class Container:
    """`name`: as a scenario names it, `scheduler` or `kubelet/3f2a…` by its host name."""

    id: str
    name: str
    service: str
    networks: tuple[str, ...]


class Containers:
    """The containers of one project. `docker`: the engine's client."""

    def __init__(self, project: str, docker: str = "docker") -> None:
        self.project, self._docker = project, docker
        self._cut: dict[str, tuple[str, ...]] = {}

    def run(self, *words: str) -> str:
        """Return what the engine's client prints. Raises: MeshError with the last line of what it says."""
        try:
            done = subprocess.run([self._docker, *words], capture_output=True, text=True, timeout=COMMAND_MAX_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MeshError(f"{self._docker} {words[0]}: {error}") from None
        if done.returncode:
            said = (done.stderr.strip() or f"exit {done.returncode}").splitlines()[-1]
            raise MeshError(f"{self._docker} {words[0]}: {said}")
        return done.stdout.strip()

    def _inspected(self) -> list[dict[str, Any]]:
        ids = self.run("ps", "-aq", "--filter", f"label={PROJECT}={self.project}").split()
        return list(json.loads(self.run("inspect", *ids))) if ids else []

    def found(self) -> dict[str, Container]:
        """Return the containers of components by name. Raises: MeshError when the project has none."""
        found: dict[str, Container] = {}
        for each in self._inspected():
            service = each["Config"]["Labels"].get(SERVICE, "")
            if service not in COMPONENTS or each["Config"]["Labels"].get("com.docker.compose.oneoff") == "True":
                continue
            name = f"kubelet/{each['Config']['Hostname']}" if service == "kubelet" else service
            found[name] = Container(each["Id"], name, service, tuple(each["NetworkSettings"]["Networks"]))
        if not found:
            raise MeshError(f"no container belongs to the compose project {self.project!r}; docker compose ls has them")
        return found

    def setting(self, service: str, variable: str) -> str:
        """Return an environment variable of a service's container, "" without one."""
        for each in self._inspected():
            if each["Config"]["Labels"].get(SERVICE) == service:
                words = (word.partition("=") for word in each["Config"]["Env"] or ())
                return next((value for name, _, value in words if name == variable), "")
        return ""

    def server(self) -> str:
        """Return where the API server's gRPC port is published. Raises: MeshError."""
        container = self.found().get("apiserver")
        published = self.run("port", container.id, GRPC_PORT).splitlines() if container else []
        if not published:
            raise MeshError(f"project {self.project!r} publishes no port {GRPC_PORT} of a container apiserver")
        return published[0]

    def copy(self, path: str, target: Path) -> None:
        """Copy a folder out of `setup`, which has all volumes of credentials. Raises: MeshError."""
        for each in self._inspected():
            if each["Config"]["Labels"].get(SERVICE) == "setup":
                self.run("cp", f"{each['Id']}:{path}/.", str(target))
                return
        raise MeshError(f"project {self.project!r} has no container setup, whose volumes have the credentials")

    async def _do(self, *words: str) -> None:
        try:
            await asyncio.to_thread(self.run, *words)
        except MeshError as error:
            raise NotPossible(str(error)) from None

    async def kill(self, container: Container, down_s: float | None) -> None:
        """SIGKILL, and a start after that while: the engine's restart policy takes a kill by hand for a stop."""
        await self._do("kill", "-s", "KILL", container.id)
        await asyncio.sleep(KILLED_S if down_s is None else down_s)
        await self._do("start", container.id)

    async def restart(self, container: Container) -> None:
        """SIGTERM, and a start."""
        await self._do("restart", container.id)

    async def pause(self, container: Container, duration_s: float) -> None:
        """Freeze all its processes for that while."""
        await self._do("pause", container.id)
        try:
            await asyncio.sleep(duration_s)
        finally:
            await self._do("unpause", container.id)

    def cut(self, container: Container, *, is_cut: bool) -> None:
        """Take the container out of its networks, or put it back under its service's name; return when it is so.
        Raises: MeshError."""
        if is_cut and container.id not in self._cut:
            self._cut[container.id] = container.networks
            for network in container.networks:
                self.run("network", "disconnect", network, container.id)
        elif not is_cut:
            for network in self._cut.pop(container.id, ()):
                self.run("network", "connect", "--alias", container.service, network, container.id)

    def heal(self, containers: Sequence[Container]) -> None:
        """Put all back that were cut off. Raises: MeshError."""
        for each in containers:
            self.cut(each, is_cut=False)
