"""`keplab down`: stop the mesh of a data directory."""

import os
import shutil
import signal
import time
from pathlib import Path

import click

from services.cli.output import EXIT_FAILED, EXIT_OK, data_option
from services.runtime.mesh_directory import LOCK_FILE, holder, is_alive

STOP_MAX_S = 60.0
POLL_S = 0.05


EPILOG = """\
\b
Examples:
  keplab down
  keplab down --data /tmp/mesh --purge
"""


@click.command("down", epilog=EPILOG)
@data_option
@click.option("--purge", is_flag=True, help="also remove the data directory")
def COMMAND(data: Path, purge: bool) -> int:  # noqa: N802
    """Stop the mesh that runs on a data directory; what is stored stays there."""
    pid = holder(data)
    if pid > 0:
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_MAX_S
        while holder(data) == pid or is_alive(pid):
            if time.monotonic() > deadline:
                click.echo(f"the mesh on {data} (pid {pid}) has not stopped after {STOP_MAX_S:g} s", err=True)
                return EXIT_FAILED
            time.sleep(POLL_S)
        click.echo("mesh is down")
    else:
        click.echo(f"no mesh runs on {data}")
    if purge and (data / LOCK_FILE).exists():
        shutil.rmtree(data)
        click.echo(f"removed {data}")
    return EXIT_OK
