"""Options with which a scenario is run against a mesh that runs already, and what is known of that mesh."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from services.cli.output import fail
from services.scenarios.processes.containers import Containers
from services.scenarios.processes.foreign_mesh import Access

CREDENTIALS = "/credentials/lab"


def running_mesh_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name the mesh."""
    command = click.option(
        "--containers",
        metavar="PROJECT",
        default="",
        help="against the mesh in the containers of a compose project; faults kill, pause and cut off these",
    )(command)
    return click.option(
        "--server",
        metavar="HOST:PORT",
        default="",
        envvar="KEPLAB_LAB_SERVER",
        help="against the mesh with this gRPC address, as docker compose run lab does",
    )(command)


def running_mesh(server: str, containers: str) -> Access | None:
    """Return how the mesh is reached that the options name; None: there is none. Raises: MeshError."""
    if containers:
        found = Containers(containers)
        folder = Path(tempfile.mkdtemp(prefix="keplab-credentials-"))
        click.get_current_context().call_on_close(lambda: _remove(folder))
        address = found.server()
        found.copy(CREDENTIALS, folder)
        is_strict = found.setting("apiserver", "KEPLAB_SECURITY") == "strict"
        return Access(address, folder, is_strict, _words(found.setting("apiserver", "KEPLAB_SET")), found)
    if not server:
        return None
    folder = Path(os.environ.get("KEPLAB_LAB_CREDENTIALS", CREDENTIALS))
    if not (folder / "token.json").is_file():
        fail(f"--server {server}: {folder} has no token.json; `docker compose run --rm lab` has it")
    is_strict = os.environ.get("KEPLAB_SECURITY") == "strict"
    return Access(server, folder, is_strict, _words(os.environ.get("KEPLAB_SET", "")))


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
