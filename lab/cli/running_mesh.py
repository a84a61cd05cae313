"""Options for running a scenario against a mesh that already runs, and what is known of that mesh."""

import asyncio
import json
import os
import socket
import tempfile
import urllib.request
from pathlib import Path

import click

from lab.cli.output import fail
from lab.scenarios.processes.access import Access
from lab.scenarios.processes.containers import Containers
from lab.scenarios.processes.mesh_switches import FOLDER, EnginePlace, MeshSwitches, VolumePlace
from services.runtime.components import HEALTH_PORT
from services.runtime.config import MeshError
from services.runtime.set_file import words_of

CREDENTIALS = "/credentials/lab"
CONFIGZ_MAX_S = 10.0


def running_mesh(server: str, containers: str) -> Access | None:
    """Return the access to the mesh that the options name; None if they name none. Raises: MeshError."""
    if containers:
        mesh_containers = Containers(containers)
        folder = Path(tempfile.mkdtemp(prefix="keplab-credentials-"))
        click.get_current_context().call_on_close(lambda: _remove(folder))
        address = mesh_containers.server()
        mesh_containers.copy(CREDENTIALS, folder)
        is_strict = mesh_containers.setting("apiserver", "KEPLAB_SECURITY") == "strict"
        own = words_of(mesh_containers.setting("apiserver", "KEPLAB_SET"))
        switching = MeshSwitches(EnginePlace(mesh_containers)) if mesh_containers.has_volume(FOLDER) else None
        _put_back_at_the_end(switching)
        return Access(address, folder, is_strict, own, mesh_containers, switching)
    if not server:
        return None
    folder = Path(os.environ.get("KEPLAB_LAB_CREDENTIALS", CREDENTIALS))
    if not (folder / "token.json").is_file():
        fail(f"--server {server}: {folder} has no token.json; `docker compose run --rm lab` has it")
    switching = None
    if os.access(FOLDER, os.W_OK):
        token = next(iter(Access(server, folder).tokens("token.json").values()), "")
        switching = MeshSwitches(VolumePlace(Path(FOLDER), token))
        # What a command that was killed left would count as the mesh's own.
        asyncio.run(switching.put_back())
        _put_back_at_the_end(switching)
    is_strict = os.environ.get("KEPLAB_SECURITY") == "strict"
    return Access(server, folder, is_strict, _switches(server, folder), switching=switching)


def _put_back_at_the_end(switching: MeshSwitches | None) -> None:
    """Have the mesh's own switches put back when the command ends, also by Ctrl-C; a failure is one line."""

    def put_back() -> None:
        assert switching is not None
        try:
            asyncio.run(switching.put_back())
        except MeshError as error:
            click.echo(f"the mesh's own switches are not put back: {error}; docker compose up -d does it", err=True)

    if switching is not None:
        click.get_current_context().call_on_close(put_back)


def _switches(server: str, folder: Path) -> tuple[str, ...]:
    """Return what the API server says is set. Raises: MeshError."""
    # By its address: a server answers to no name but the loopback ones.
    host = server.partition(",")[0].rpartition(":")[0]
    try:
        token = next(iter(json.loads((folder / "token.json").read_bytes()).values()))
        url = f"http://{socket.gethostbyname(host)}:{HEALTH_PORT}/configz"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=CONFIGZ_MAX_S) as answer:
            return tuple(json.load(answer)["set"])
    except (OSError, ValueError, KeyError) as error:
        raise MeshError(f"the switches of the mesh at {server} cannot be read: {error}") from None


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
