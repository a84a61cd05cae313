"""`keplab status`: the processes of a mesh and where to reach it."""

import time
import urllib.request
from pathlib import Path
from typing import Any

import click

from services.api.times import duration, format_time, parse_time
from services.cli.output import EXIT_FAILED, EXIT_OK, data_option, output_option, print_json, print_table
from services.cli.registered_drivers import registered_drivers
from services.runtime.components import CLAIM_CONTROLLER, component_of
from services.runtime.credentials import admin_headers
from services.runtime.mesh_directory import holder, read_state
from services.runtime.rotation import held

ELECTING = ("scheduler", "controllers", CLAIM_CONTROLLER)
TIMEOUT_S = 1.0

EPILOG = """\
\b
Examples:
  keplab status
  keplab status -o json | jq -r .rest_url
  keplab status -o json | jq '.drivers[] | select(.socket_state != "answers")'

\b
Of a DRA driver, whoever started it: whether its kubelet has registered it, what is found at its registration socket
(answers; no answer: it hangs or is stopped; closed: its process is gone; no socket: a file of another kind), and how
many devices it publishes in how many ResourceSlices.
"""


@click.command("status", epilog=EPILOG)
@data_option
@output_option
def COMMAND(data: Path, output: str) -> int:  # noqa: N802
    """Show the processes of the mesh, where to reach it, when its certificates expire, and its DRA drivers.

    Exit code 1 when none runs or one is not ready.
    """
    state = read_state(data)
    if state is None:
        state = {"kubeconfig": "", "rest_url": "", "grpc_target": "", "ready": False, "processes": []}
        state["drivers"], state["certificates"] = [], []
        if output == "json":
            print_json(state)
        else:
            what = f"the mesh on {data} is starting" if holder(data) else f"no mesh runs on {data}; try `keplab up`"
            click.echo(what)
        return EXIT_FAILED
    headers = admin_headers(data)
    for process in state["processes"]:
        process["leads"] = _leads(process, headers)
    state["drivers"] = registered_drivers(data, state)
    state["certificates"] = _certificates(data)
    if output == "json":
        print_json(state)
    else:
        _print(state)
    return EXIT_OK if state["ready"] else EXIT_FAILED


def _leads(process: dict[str, Any], headers: dict[str, str]) -> bool | None:
    """Return whether a process that takes part in an election leads, by its own word; None for all others."""
    if component_of(process["name"]) not in ELECTING or not process["ready"] or not process["port"]:
        return None
    try:
        asked = urllib.request.Request(f"http://127.0.0.1:{process['port']}/metrics", headers=headers)
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as reply:
            lines = reply.read().decode().splitlines()
    except OSError:
        return None
    found = [line.rpartition(" ")[2] for line in lines if line.startswith("leader_election_master_status")]
    return float(found[0]) == 1.0 if found else None


def _certificates(data: Path) -> list[dict[str, str]]:
    """Return the mesh's certificates: name, whom it names, when it expires; none for files that cannot be read."""
    try:
        found = held(data)
    except (OSError, ValueError):
        return []
    return [
        {"name": each.name, "subject": each.subject, "expires": format_time(each.not_after.timestamp())}
        for each in found
    ]


def _print(state: dict[str, Any]) -> None:
    shown = (("kubeconfig", "kubeconfig"), ("REST", "rest_url"), ("gRPC", "grpc_target"), ("security", "security"))
    for label, key in shown:
        click.echo(f"{label:<12}{state[key]}")
    if state["certificates"]:
        first = min((each for each in state["certificates"]), key=lambda each: each["expires"])
        left = duration(parse_time(first["expires"]) - time.time())
        click.echo(
            f"{'expires':<12}{first['expires']}, in {left}: {first['name']}, the first of "
            f"{len(state['certificates'])} certificates (all: keplab status -o json)"
        )
    click.echo()
    print_table(
        ("NAME", "PID", "PORT", "READY", "LEADS", "UPTIME", "RESTARTS", "LAST ERROR"),
        [
            (
                process["name"],
                process["pid"] or "-",
                process["port"] or "-",
                "yes" if process["ready"] else "no",
                {None: "-", True: "yes", False: "standby"}[process["leads"]],
                f"{process['uptime_s']:.0f}s",
                process["restarts"],
                process["last_error"],
            )
            for process in state["processes"]
        ],
    )
    if state["drivers"]:
        click.echo()
        print_table(
            ("NODE", "DRIVER", "REGISTERED", "SOCKET", "DEVICES", "SLICES", "LAST ERROR"),
            [
                (
                    each["node"],
                    each["driver"] or Path(each["socket"]).name,
                    "yes" if each["registered"] else "no",
                    each["socket_state"],
                    "-" if each["devices"] is None else each["devices"],
                    "-" if each["slices"] is None else each["slices"],
                    each["error"],
                )
                for each in state["drivers"]
            ],
        )
