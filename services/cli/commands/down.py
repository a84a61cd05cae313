"""`keplab down`: stop the mesh of a data directory."""

import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

import click

from services.cli.output import EXIT_FAILED, EXIT_OK, data_option
from services.runtime.mesh_directory import LOCK_FILE, holder, is_alive

STOP_MAX_S = 60.0
POLL_S = 0.02
BEGINNING_S = 0.5
"""How long it is looked for a mesh that was begun just before and has not yet taken its directory."""


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
    """Stop the mesh; what is stored stays."""
    asked = time.monotonic()
    signalled: list[int] = []
    while True:
        pid = holder(data)
        if pid > 0 and pid not in signalled:
            # While a mesh starts in the background, its holder changes once.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            signalled.append(pid)
        waited_s = time.monotonic() - asked
        if not pid and not any(map(is_alive, signalled)) and (signalled or waited_s > BEGINNING_S):
            break
        if waited_s > STOP_MAX_S:
            click.echo(f"the mesh on {data} (pid {pid}) has not stopped after {STOP_MAX_S:g} s", err=True)
            return EXIT_FAILED
        time.sleep(POLL_S)
    click.echo("mesh is down" if signalled else f"no mesh runs on {data}")
    if purge and (data / LOCK_FILE).exists():
        shutil.rmtree(data)
        click.echo(f"removed {data}")
    return EXIT_OK
