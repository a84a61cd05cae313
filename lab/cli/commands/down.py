"""`keplab down`: stop the mesh of a data directory."""

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from lab.cli.output import EXIT_FAILED, EXIT_OK, data_option, fail, output_option, print_json
from services.runtime import mesh_directory
from services.runtime.config import MeshError
from services.runtime.mesh_directory import LOCK_FILE, holder, is_alive

STOP_MAX_S = 60.0
POLL_S = 0.02
BEGINNING_S = 0.5
"""Seconds to wait for a mesh that was just started and has not yet locked its directory."""


EPILOG = """\
\b
Examples:
  keplab down
  keplab down --data /tmp/mesh --purge
"""


@click.command("down", epilog=EPILOG)
@data_option
@click.option("--purge", is_flag=True, help="also remove everything that the mesh has stored")
@output_option
def down(data: Path, purge: bool, output: str) -> int:
    """Stop the mesh and keep its stored state.

    --purge removes the stored state, too, and the data directory unless it holds anything else.
    """
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
    lines = ["mesh is down" if signalled else f"no mesh runs on {data}"]
    document: dict[str, Any] = {"data": str(data), "stopped": bool(signalled), "removed": False, "kept": []}
    if purge:
        had_mesh = (data / LOCK_FILE).exists()
        try:
            left = mesh_directory.purge(data)
        except (OSError, MeshError) as error:
            click.echo(lines[0], err=output == "json")
            fail(f"{data}: {error}", EXIT_FAILED)
        document |= {"removed": had_mesh, "kept": left}
        lines.append(_removal_text(data, left) if had_mesh else f"nothing to remove: no mesh ever ran on {data}")
    if output == "json":
        print_json(document)
    else:
        click.echo("\n".join(lines))
    return EXIT_OK


def _removal_text(data: Path, left: Sequence[str]) -> str:
    if left:
        return f"removed the mesh's data from {data}; not the mesh's, and kept: {', '.join(left)}"
    return f"removed {data}"
