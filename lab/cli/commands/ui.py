"""`keplab ui`: show the live page of a mesh, and of recordings."""

from __future__ import annotations

import asyncio
import os
import signal
import webbrowser
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from lab.cli.output import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, data_option, fail, takes
from lab.cli.run_options import RUNS_DEFAULT, RUNS_VARIABLE
from lab.cli.scenario_files import FOLDER, shipped_folder
from lab.experiments.wording import count_text

if TYPE_CHECKING:
    from lab.ui.access import Place

PRIORITY: Final = 10
"""Niceness of the page's server, so that the mesh's processes come first where CPUs are few."""

EPILOG = """\
\b
Examples:
  keplab ui
  keplab ui --allow-break --open
  keplab ui --allow-write --port 7171
  keplab ui --run runs/fail-1.keprec --run runs/unbind-1.keprec
  keplab ui --page race.html runs/fail-1.keprec runs/unbind-1.keprec
  keplab ui --page race.html runs/runaway.json runs/fail-1.keprec runs/unbind-1.keprec
"""


@dataclass(frozen=True, kw_only=True)
class UiOptions:
    """Options of the page, one field an option, as click parses it.

    `port`: a TCP port, 0 for any free one. `hosts`: further host names of the server. `tops`: folders with
    scenarios that the page may run. `recording`: where the mesh is recorded, None for its own directory, the path
    `none` for nowhere. `server`: HOST:PORT of a mesh in containers, "" for the one on `data`; `credentials`,
    `events`, `spans` go with it. `page`: the file that the page is written into, with `files` and `detail`; None:
    it is served.
    """

    data: Path
    host: str
    port: int
    hosts: tuple[str, ...]
    token_file: Path | None
    allow_write: bool
    allow_break: bool
    is_opened: bool
    runs: tuple[Path, ...]
    tops: tuple[Path, ...]
    recording: Path | None
    server: str
    credentials: Path
    events: Path | None
    spans: Path | None
    page: Path | None
    detail: Literal["everything", "decisions"]
    files: tuple[Path, ...]
    die_with_parent: bool


@click.command("ui", epilog=EPILOG)
@data_option
@click.option("--host", default="127.0.0.1", show_default=True, help="address to listen on")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="port to listen on [any free]")
@click.option(
    "--allowed-host", "hosts", multiple=True, metavar="NAME", help="further host name of the page; may be repeated"
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="file with the secret text that opens the page, at least 32 characters [a new text for each start]",
)
@click.option("--allow-write", is_flag=True, help="let the page change objects, in the administrator's name")
@click.option("--allow-break", is_flag=True, help="let the page kill and stop processes, and break links")
@click.option("--open", "is_opened", is_flag=True, help="open the page in the browser")
@click.option(
    "--run",
    "runs",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="recording to show beside the mesh, or without a mesh; a folder stands for all recordings in it; may be "
    "repeated",
)
@click.option(
    "--scenarios",
    "tops",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="folder with scenarios that the page may run, beside experiments; may be repeated",
)
@click.option(
    "--recording",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="file to record the mesh into; none: no recording [ui.keprec in the mesh's directory]",
)
@click.option(
    "--server", metavar="HOST:PORT", default="", envvar="KEPLAB_UI_SERVER", help="gRPC address of a mesh in containers"
)
@click.option(
    "--credentials",
    type=click.Path(path_type=Path),
    default=Path("/credentials/ui"),
    metavar="DIR",
    help="with --server: directory with token and certificates [/credentials/ui]",
)
@click.option(
    "--events",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="with --server: directory of the processes' event logs",
)
@click.option(
    "--spans", type=click.Path(path_type=Path), metavar="DIR", help="with --server: directory of the processes' spans"
)
@click.option(
    "--page",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="OUT",
    help="write the page, with recordings and a comparison's JSON document, into one file that needs no server",
)
@click.option(
    "--detail",
    type=click.Choice(["everything", "decisions"]),
    default="everything",
    show_default=True,
    help="with --page: detail of the page; decisions leaves objects out",
)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@click.option("--die-with-parent", is_flag=True, hidden=True)
@takes(UiOptions)
def ui(options: UiOptions) -> int:
    """Show a running mesh in a browser.

    Only the address that the command prints opens the page. The page only reads, unless --allow-write or --allow-break
    is given. With --run it shows recordings, and needs no mesh.
    """
    from lab.recordings.format import Unreadable
    from lab.recordings.writer import NotRecordable
    from lab.ui.access import NoMeshError
    from lab.ui.run import LOOPBACK, Options, read_token, serve
    from lab.ui.server import Settings
    from services.runtime.config import MeshError
    from services.runtime.real import die_with_parent

    if options.page is not None:
        return _write_page((*options.files, *options.runs), options.page, options.detail)
    if options.files:
        raise click.UsageError(f"{options.files[0]}: FILE needs --page; --run FILE shows a recording")
    if options.detail != "everything":
        raise click.UsageError(f"--detail {options.detail} needs --page")
    if options.die_with_parent:
        die_with_parent(os.environ)
    host, token_file = options.host, options.token_file
    if host not in LOOPBACK:
        if token_file is None:
            raise click.UsageError(
                f"--host {host}: everyone who reaches this address could open the page; add --token-file"
            )
        what = f"{host} is no loopback address: the page is served without TLS to whoever has the token"
        click.secho(f"keplab: {what}", err=True, fg="yellow")
    experiments = Path(FOLDER) if Path(FOLDER).is_dir() else shipped_folder()
    try:
        token = read_token(token_file) if token_file is not None else ""
    except ValueError as error:
        fail(f"--token-file {error}")
    try:
        place: Place | None = _place(options)
    except MeshError as error:
        if not options.runs or options.server:
            hint = "; start one with `keplab up`, or show recordings with --run FILE.keprec"
            fail(f"{error}{hint if isinstance(error, NoMeshError) else ''}", EXIT_FAILED)
        click.secho(f"keplab: {error}: only the recordings are shown", err=True, fg="yellow")
        place = None
    recording = options.recording or options.data / "ui.keprec"
    served = Options(
        host,
        options.port,
        token,
        options.hosts,
        options.runs,
        None if str(recording) == "none" or (options.server and not options.recording) else recording,
        bool(options.recording),
        (experiments, *options.tops),
        Path(os.environ.get(RUNS_VARIABLE, RUNS_DEFAULT)) / "ui",
    )
    settings = Settings(version("keplab"), options.allow_write, options.allow_break)

    def on_ready(url: str) -> None:
        shown = url if not token else f"{url.partition('#')[0]}#t=… (the text of {token_file})"
        click.echo(shown)
        if options.is_opened:
            webbrowser.open(url)

    def on_completing(path: Path, versions: int) -> None:
        what = f"completing {path} with {count_text(versions, 'version')}"
        click.secho(f"keplab: {what}; Ctrl-C again leaves it as it is", err=True, fg="yellow")

    if place is not None:
        os.nice(PRIORITY)
    try:
        number = asyncio.run(serve(served, settings, place, on_ready, on_completing))
    except (Unreadable, NotRecordable) as error:
        fail(str(error))
    return EXIT_INTERRUPTED if number == signal.SIGINT else EXIT_OK


def _write_page(paths: tuple[Path, ...], out: Path, detail: str) -> int:
    """Write the page with these recordings, and perhaps a comparison, into one file; return the exit code."""
    from lab.recordings.format import Unreadable
    from lab.ui.page import write_page
    from lab.ui.result_page import embed_comparison, recordings_text, sorted_out

    try:
        comparison, recordings = sorted_out(paths)
    except ValueError as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot read {error.filename}: {error.strerror}")
    try:
        result = embed_comparison(comparison, recordings_text(len(recordings))) if comparison is not None else None
        written = write_page(recordings, out, detail, result)
    except (Unreadable, ValueError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot write {out}: {error.strerror}")
    parts = {**written.parts, "the page itself": written.size - sum(written.parts.values())}
    largest_first = sorted(parts.items(), key=lambda part: -part[1])
    words = ", ".join(f"{name} {_size(size)}" for name, size in largest_first if size)
    click.echo(f"{written.path}: {_size(written.size)} ({words})")
    if written.advice:
        click.secho(f"keplab: {written.advice}", err=True, fg="yellow")
    return EXIT_OK


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count / 1e3:.1f} kB"


def _place(options: UiOptions) -> Place:
    """Return where the mesh is. Raises: MeshError."""
    from lab.ui.access import ContainerMesh, LocalMesh

    if not options.server:
        return LocalMesh(options.data, may_write=options.allow_write)
    return ContainerMesh.from_folder(
        options.server, options.credentials, may_write=options.allow_write, events=options.events, spans=options.spans
    )
