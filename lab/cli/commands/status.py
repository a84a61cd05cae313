"""`keplab status`: show the processes of a mesh and where to reach it."""

import re
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from lab.cli.output import EXIT_FAILED, EXIT_OK, data_option, output_option, print_json, print_table
from lab.experiments.wording import count_text
from services.api.times import duration, format_time, parse_time
from services.runtime.components import CLAIM_CONTROLLER, component_of
from services.runtime.control import NoAnswer, ask
from services.runtime.mesh_directory import STATE_FILE, holder, parent_of, read_state

MEASURED = (
    ("StoreReadOnly", "keplab_store_read_only", "the store is full: reads go on, writes get 503 until there is space"),
    ("EventsDropped", "keplab_event_log_incomplete", "its event log takes no lines: the disk is full"),
)
"""Conditions of a process: type, the metric that is above 0 while the condition holds, and message."""
FORBIDDEN = "keplab_requests_forbidden_total"
"""Name of the metric that counts forbidden requests of components, by user, verb and resource."""
_LABEL = re.compile(r'(\w+)="([^"]*)"')
DISK_FREE_MIN = 256 * 1024
SUPERVISOR_MAX_S = 5.0
ELECTING = ("scheduler", "controllers", CLAIM_CONTROLLER)
TIMEOUT_S = 1.0

EPILOG = """\
\b
Examples:
  keplab status
  keplab status -o json | jq -r .rest_url
  keplab status -o json | jq '.drivers[] | select(.socket_state != "answers")'

\b
For each DRA driver, also one that another tool started, the output says whether its kubelet has registered it, and how
many devices it publishes in how many ResourceSlices. It also says what is at the driver's registration socket (answers;
no answer: the driver hangs or is stopped; closed: its process is gone; no socket: a file of another kind).
"""


@click.command("status", epilog=EPILOG)
@data_option
@output_option
def status(data: Path, output: str) -> int:
    """Show the processes of the mesh and where to reach it.

    The output also shows the DRA drivers, and when the certificates expire. The exit code is 1 when no process runs,
    one is not ready, or a condition holds.
    """
    state = _state(data)
    if state is None:
        state = {"kubeconfig": "", "rest_url": "", "grpc_target": "", "ready": False, "processes": []}
        state["drivers"], state["certificates"], state["conditions"] = [], [], []
        if output == "json":
            print_json(state)
        else:
            what = f"the mesh on {data} is starting" if holder(data) else f"no mesh runs on {data}; try `keplab up`"
            click.echo(what)
        return EXIT_FAILED
    from concurrent.futures import ThreadPoolExecutor

    from lab.cli.registered_drivers import registered_drivers
    from services.runtime.credentials import admin_headers

    _compare_with_kernel(state)
    headers, processes = admin_headers(data), state["processes"]
    with ThreadPoolExecutor(max_workers=len(processes) or 1) as pool:
        asked = pool.map(lambda process: _metrics(process, headers), processes)
        metrics = dict(zip((p["name"] for p in processes), asked, strict=True))
    for process in processes:
        process["leads"] = _leads(process, metrics[process["name"]])
    state["conditions"] = [*state.get("conditions", []), *_conditions(data, state, metrics)]
    state["ready"] = all(process["ready"] for process in processes) and bool(state["ready"])
    state["drivers"] = registered_drivers(data, state)
    state["certificates"] = _certificates(data)
    if output == "json":
        print_json(state)
    else:
        _print(state)
    return EXIT_OK if state["ready"] and not state["conditions"] else EXIT_FAILED


def _state(data: Path) -> dict[str, Any] | None:
    """Return what the supervisor says of its mesh, or has written last; None when no mesh runs or it still starts."""
    if not holder(data):
        return None
    try:
        state = ask(data, {"verb": "status"}, SUPERVISOR_MAX_S)["status"]
    except (NoAnswer, KeyError) as error:
        state = read_state(data)
        if state is not None:
            state["conditions"] = [{"type": "SupervisorNotAnswering", "process": "", "message": str(error)}]
    return state if state is not None and state.get("started") else None


def _compare_with_kernel(state: dict[str, Any]) -> None:
    """Have a process count as ready only if the kernel has it, and as the supervisor's child."""
    for process in state["processes"]:
        pid = process["pid"]
        if pid and parent_of(pid) != state["supervisor_pid"]:
            process["ready"], process["state"], process["uptime_s"] = False, "Gone", 0.0
            process["last_error"] = process["last_error"] or f"there is no process {pid} of this mesh"


def _metrics(process: dict[str, Any], headers: dict[str, str]) -> dict[str, float] | None:
    """Return a process's metrics without labels, but those of `FORBIDDEN`; {} where it has no port for them, None when
    it does not answer."""
    port = process.get("ports", {}).get("health", 0)
    if not process["ready"] or not port:
        return {}
    import urllib.error
    import urllib.request
    from http.client import HTTPException

    try:
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=headers)
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as reply:
            lines = reply.read().decode().splitlines()
    except urllib.error.HTTPError:
        return {}  # it answers, but not to us
    except (OSError, HTTPException):
        return None
    pairs = (line.rpartition(" ")[::2] for line in lines if not line.startswith("#"))
    return {
        name if name.startswith(FORBIDDEN) else name.partition("{")[0]: float(value) for name, value in pairs if name
    }


def _leads(process: dict[str, Any], metrics: dict[str, float] | None) -> bool | None:
    """Return whether a process that takes part in an election leads, by its own word; None for all others."""
    if component_of(process["name"]) not in ELECTING or not metrics:
        return None
    found = metrics.get("leader_election_master_status")
    return None if found is None else found == 1.0


def _conditions(data: Path, state: dict[str, Any], metrics: dict[str, dict[str, float] | None]) -> list[dict[str, str]]:
    """Return what is wrong beyond processes that are down, as conditions that are true: type, process, message."""
    conditions: list[tuple[str, str, str]] = []
    with suppress(OSError):
        free = shutil.disk_usage(data).free
        if free < DISK_FREE_MIN:
            conditions.append(("DiskFull", "", f"{free // 1024} KiB are free where {data} is"))
    if state.get("state_error"):
        conditions.append(("StateNotWritten", "", f"{data / STATE_FILE} is out of date: {state['state_error']}"))
    for name, values in metrics.items():
        if values is None:
            conditions.append(("NotAnswering", name, f"no answer at its health port within {TIMEOUT_S:g} s"))
            continue
        for condition, metric, message in MEASURED:
            if values.get(metric):
                conditions.append((condition, name, message))
        conditions += (("RequestsForbidden", name, text) for text in _forbidden(values))
    return [{"type": condition, "process": name, "message": message} for condition, name, message in conditions]


def _forbidden(metrics: dict[str, float]) -> list[str]:
    """Return what an API server has refused to each component because of its role, a line for each."""
    by_user: dict[str, list[str]] = {}
    for name, count in metrics.items():
        if name.startswith(FORBIDDEN):
            labels = dict(_LABEL.findall(name))
            what = f"{labels['verb']} {labels['resource']} ({count_text(round(count), 'time')})"
            by_user.setdefault(labels["user"], []).append(what)
    return [f"the role of {user} does not allow: {', '.join(sorted(asked))}" for user, asked in sorted(by_user.items())]


def _certificates(data: Path) -> list[dict[str, str]]:
    """Return the mesh's certificates: name, whom it names, when it expires; none for files that cannot be read."""
    from services.runtime.rotation import mesh_certificates

    try:
        certificates = mesh_certificates(data)
    except (OSError, ValueError):
        return []
    return [
        {"name": each.name, "subject": each.subject, "expires": format_time(each.not_after.timestamp())}
        for each in certificates
    ]


def _state_of(process: dict[str, Any]) -> str:
    """Return a process's state, and when it is tried again."""
    name, next_s = process.get("state", "-"), process.get("next_try_in_s")
    return f"{name} ({next_s:.0f}s)" if next_s is not None and name != "Running" else str(name)


def _print(state: dict[str, Any]) -> None:
    shown = (("kubeconfig", "kubeconfig"), ("REST", "rest_url"), ("gRPC", "grpc_target"), ("security", "security"))
    for label, key in shown:
        click.echo(f"{label:<12}{state[key]}")
    if state.get("page"):
        click.echo(f"{'page':<12}{state['page']}")
    for fault in state.get("faults", ()):
        left = "" if fault["left_s"] is None else f", {fault['left_s']:.0f} s left"
        click.secho(f"{'fault':<12}{fault['target']}: {fault['action']}{left}", fg="yellow")
    if state["certificates"]:
        first = min((each for each in state["certificates"]), key=lambda each: each["expires"])
        left = duration(parse_time(first["expires"]) - time.time())
        click.echo(
            f"{'expires':<12}{first['expires']}, in {left}: {first['name']}, the first of "
            f"{len(state['certificates'])} certificates (all: keplab status -o json)"
        )
    for condition in state["conditions"]:
        of = f"{condition['process']}: " if condition["process"] else ""
        click.secho(f"{condition['type']:<23}{of}{condition['message']}", fg="red")
    click.echo()
    print_table(
        ("NAME", "PID", "PORT", "READY", "STATE", "LEADS", "UPTIME", "RESTARTS", "LAST ERROR"),
        [
            (
                process["name"],
                process["pid"] or "-",
                process["port"] or "-",
                "yes" if process["ready"] else "no",
                _state_of(process),
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
