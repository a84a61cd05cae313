"""`keplab ui`: the live page of a mesh, and of recordings."""

import asyncio
import signal
import webbrowser
from pathlib import Path

import click

from services.cli.output import EXIT_INTERRUPTED, EXIT_OK, data_option

EPILOG = """\
\b
Examples:
  keplab ui
  keplab ui --allow-break --open
  keplab ui --allow-write --port 7171
  keplab ui --data /tmp/mesh
"""


@click.command("ui", epilog=EPILOG)
@data_option
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="address to listen on; any but a loopback one needs --token-file",
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="port to listen on [any free]")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="the text that opens the page, at least 32 characters [a new one each start]",
)
@click.option("--allow-write", is_flag=True, help="let the page change objects, in the administrator's name")
@click.option("--allow-break", is_flag=True, help="let the page kill and stop processes, and break links")
@click.option("--open", "is_opened", is_flag=True, help="open it in the browser")
def COMMAND(  # noqa: N802
    data: Path, host: str, port: int, token_file: Path | None, allow_write: bool, allow_break: bool, is_opened: bool
) -> int:
    """Show a mesh as it runs, in a browser.

    The address that it prints opens the page, and nothing else does. It only reads, unless it is started with
    --allow-write or --allow-break.
    """
    from importlib.metadata import version

    from services.ui.access import LocalMesh
    from services.ui.run import LOOPBACK, Options, read_token, serve
    from services.ui.server import Settings

    if host not in LOOPBACK:
        if token_file is None:
            raise click.UsageError(f"--host {host}: whoever reaches it could open the page; it needs --token-file")
        click.secho(
            f"keplab: {host} is no loopback address: the page is served without TLS to whoever has the token",
            err=True,
            fg="yellow",
        )
    token = read_token(token_file) if token_file is not None else ""

    def on_ready(url: str) -> None:
        click.echo(url)
        if is_opened:
            webbrowser.open(url)

    place = LocalMesh(data, may_write=allow_write)
    number = asyncio.run(
        serve(Options(host, port, token), Settings(version("keplab"), allow_write, allow_break), place, on_ready)
    )
    return EXIT_INTERRUPTED if number == signal.SIGINT else EXIT_OK
