"""`keplab status`: the processes of a mesh and where to reach it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from services.cli.output import EXIT_FAILED, EXIT_OK, data_option, output_option, print_json, print_table
from services.runtime.mesh_directory import holder, read_state

EPILOG = """\
\b
Examples:
  keplab status
  keplab status -o json | jq -r .rest_url
"""


@click.command("status", epilog=EPILOG)
@data_option
@output_option
def COMMAND(data: Path, output: str) -> int:  # noqa: N802
    """Show the processes of the mesh and where to reach it. Exit code 1 when none runs or one is not ready."""
    state = read_state(data)
    if state is None:
        state = {"kubeconfig": "", "rest_url": "", "grpc_target": "", "ready": False, "processes": []}
        if output == "json":
            print_json(state)
        else:
            what = f"the mesh on {data} is starting" if holder(data) else f"no mesh runs on {data}; try `keplab up`"
            click.echo(what)
        return EXIT_FAILED
    if output == "json":
        print_json(state)
    else:
        _tell(state)
    return EXIT_OK if state["ready"] else EXIT_FAILED


def _tell(state: dict[str, Any]) -> None:
    for label, key in (("kubeconfig", "kubeconfig"), ("REST", "rest_url"), ("gRPC", "grpc_target")):
        click.echo(f"{label:<12}{state[key]}")
    click.echo()
    print_table(
        ("NAME", "PID", "PORT", "READY", "UPTIME", "RESTARTS", "LAST ERROR"),
        [
            (
                process["name"],
                process["pid"] or "-",
                process["port"] or "-",
                "yes" if process["ready"] else "no",
                f"{process['uptime_s']:.0f}s",
                process["restarts"],
                process["last_error"],
            )
            for process in state["processes"]
        ],
    )
