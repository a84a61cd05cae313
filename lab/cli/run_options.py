"""Options of commands that run scenarios. What runs them is not imported."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from lab.cli.output import F

RUNS_DEFAULT = "runs"
RUNS_VARIABLE = "KEPLAB_RUNS"
NO_RUNS = "none"


def runs_option(command: F) -> F:
    """Add `--runs DIR` to a command that runs something; the parameter is called `runs`."""
    return _option("directory for the record of the run (`keplab runs`); none: keep no record")(command)


def runs_folder_option(command: F) -> F:
    """Add `--runs DIR` to a command that reads records; the parameter is called `runs`."""
    return _option("directory of the records of runs")(command)


def _option(what: str) -> Callable[[F], F]:
    return click.option(
        "--runs",
        metavar="DIR",
        default=RUNS_DEFAULT,
        envvar=RUNS_VARIABLE,
        show_envvar=True,
        show_default=True,
        help=what,
    )


def running_mesh_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name the mesh."""
    command = click.option(
        "--containers",
        metavar="PROJECT",
        default="",
        help="run against the mesh in the containers of a compose project; faults kill, pause and cut off its "
        "containers",
    )(command)
    return click.option(
        "--server",
        metavar="HOST:PORT",
        default="",
        envvar="KEPLAB_LAB_SERVER",
        help="run against the mesh with this gRPC address, as docker compose run lab does",
    )(command)


def workers_option(command: F) -> F:
    """Add `--workers` to a command."""
    count = click.IntRange(0, 64)
    return click.option("--workers", type=count, default=0, help="number of worker processes; 0: one for each core")(
        command
    )


def sweep_options(command: F) -> F:
    """Add `--record` and `--workers` to a command."""
    where = "file that remembers finished runs; the same command goes on from it"
    return click.option("--record", type=click.Path(path_type=Path), help=where)(workers_option(command))
