"""`keplab up`: the mesh as processes on this machine."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import click
import msgspec

from services.api.errors import UNREADABLE
from services.api.switches import Switches
from services.api.times import seconds_in
from services.cli.output import EXIT_INTERRUPTED, EXIT_OK, data_option, output_option, print_json, remark, set_option
from services.runtime.certificates import AUTHORITY_LIFE
from services.runtime.components import Schedulers
from services.runtime.config import MeshError
from services.runtime.mesh_directory import AlreadyRunning, holder, read_state
from services.runtime.roles import read_role
from services.runtime.supervisor import MeshOptions, Supervisor, block_sizes

DETACHED_READY_MAX_S = 120.0
POLL_S = 0.05
LIFE_MIN_S = 30


EPILOG = """\
\b
Examples:
  keplab up
  keplab up --nodes 1000 --engine memory
  keplab up --detach && kubectl --kubeconfig .keplab/kubeconfig get nodes
  keplab up --set kubelet.on_reject=unbind --set scheduler.exclusion=soft
  keplab up --scheduler-config experiments/profiles/two.yaml
  keplab up --schedulers 2 --extra-scheduler second
  keplab up --security strict --certificate-life 24h
  keplab up --stages experiments/stages/pod-fast.yaml
  keplab up --nodes 2 --device-sockets
  keplab up --role examples/train-job/role.yaml --set reserved_for.mode=kep5194 --set GenericWorkload=true
  keplab up --nodes-file experiments/runaway/nodes.json --engine memory --set kubelet.on_reject=unbind
"""


@click.command("up", epilog=EPILOG)
@click.option("--nodes", type=click.IntRange(0, 20_000), default=3, show_default=True, help="emulated nodes")
@click.option(
    "--nodes-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="JSON list of node definitions (NUMA nodes, labels, taints); instead of --nodes",
)
@click.option(
    "--scheduler-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="KubeSchedulerConfiguration of the scheduler: profiles, plugins, extenders",
)
@click.option("--hosts", type=click.IntRange(0, 64), default=0, help="kubelet processes to deal them out to [3]")
@click.option(
    "--schedulers",
    type=click.IntRange(1, 9),
    default=1,
    show_default=True,
    help="replicas of the scheduler; one leads, the others stand by",
)
@click.option(
    "--extra-scheduler",
    "extra_schedulers",
    multiple=True,
    metavar="NAME",
    help="one more scheduler, for pods with this schedulerName; may be repeated",
)
@click.option("--engine", type=click.Choice(["memory", "sqlite"]), default="sqlite", show_default=True, help="store")
@data_option
@click.option("--rest-port", type=click.IntRange(0, 65535), default=0, help="port for kubectl [any free]")
@click.option("--grpc-port", type=click.IntRange(0, 65535), default=0, help="port for the mesh itself [any free]")
@set_option
@click.option("--latency", multiple=True, metavar="STAGE=DISTRIBUTION", help="how long kubelets take; may be repeated")
@click.option(
    "--stages",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="KWOK Stages that move pods and nodes instead of emulated containers; may be repeated",
)
@click.option(
    "--static-pods",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="manifests of static pods: files for all nodes, a folder of a node's name for one",
)
@click.option(
    "--device-sockets",
    is_flag=True,
    help="nodes take device plugins (`keplab device-plugin`) and DRA drivers (`keplab dra-driver`)",
)
@click.option(
    "--security",
    type=click.Choice(["tokens", "strict"]),
    default="tokens",
    show_default=True,
    help="strict: mutual TLS on every gRPC connection; tokens: plain connections, callers known by tokens",
)
@click.option(
    "--certificate-life",
    metavar="DURATION",
    default="8760h",
    show_default=True,
    callback=lambda _, __, value: _life(value),
    help="how long certificates are good; they are renewed when a third of it is left, at most 30 days before",
)
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="role of a controller of your own, which gets a token; may be repeated",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="of the processes' log files",
)
@click.option("--detach", is_flag=True, help="return when the mesh is ready, and leave it running")
@output_option
def COMMAND(**given: Any) -> int:  # noqa: N802
    """Start a mesh on this machine: API server, scheduler, controllers and emulated kubelets.

    It runs until Ctrl-C, or with --detach until `keplab down`. kubectl, client-go and other clients reach it
    with the kubeconfig it writes. State survives in the data directory: up again continues where it was.
    """
    from kubelet.stages.document import StageError, load_stages

    remark(Switches.parse(given["assignments"]))
    try:
        Schedulers(given["schedulers"], others=given["extra_schedulers"])
    except ValueError as error:
        raise click.UsageError(f"--extra-scheduler: {error}") from None
    for path in given["roles"]:
        try:
            read_role(path)
        except ValueError as error:
            raise click.UsageError(f"--role {error}") from None
    given["definitions"] = _definitions(given["nodes_file"], given["hosts"]) if given["nodes_file"] else {}
    if given["device_sockets"] and given["nodes_file"]:
        raise click.UsageError("--device-sockets is about --nodes; in a --nodes-file say deviceSocket of each node")
    try:
        load_stages(str(path) for path in given["stages"])
    except StageError as error:
        raise click.UsageError(f"--stages {error}") from None
    return _detach(given) if given["detach"] else _attend(given)


def _life(text: str) -> str:
    """Return the text of a life that certificates can have. Raises: BadParameter."""
    try:
        seconds = seconds_in(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if not LIFE_MIN_S <= seconds <= AUTHORITY_LIFE.total_seconds():
        raise click.BadParameter(
            f"{text}: want at least {LIFE_MIN_S} s and at most ten years, the authority's own life"
        )
    return text


def _definitions(path: Path, hosts: int) -> dict[str, list[dict[str, object]]]:
    """Return the file's node definitions by host, dealt in blocks. Raises: UsageError naming file and node."""
    from kubelet.node.definition import NodeDefinition

    try:
        found = msgspec.json.decode(path.read_bytes(), type=list[dict[str, object]])
        names = [NodeDefinition.parse(definition).name for definition in found]
    except OSError as error:
        raise click.UsageError(f"--nodes-file {path}: {error.strerror}") from None
    except (*UNREADABLE, ValueError) as error:
        raise click.UsageError(f"--nodes-file {path}: {error}") from None
    for i, name in enumerate(names):
        if name in names[:i]:
            raise click.UsageError(f"--nodes-file {path}: node {name} is defined twice")
    rest = iter(found)
    return {f"h{i}": list(islice(rest, size)) for i, size in enumerate(block_sizes(len(found), hosts))}


def _attend(given: dict[str, Any]) -> int:
    schedulers = Schedulers(
        given["schedulers"],
        others=given["extra_schedulers"],
        config=str(given["scheduler_config"].absolute()) if given["scheduler_config"] else "",
    )
    options = MeshOptions(
        data_dir=given["data"],
        nodes=0 if given["definitions"] else given["nodes"],
        hosts=given["hosts"],
        definitions=given["definitions"],
        engine=given["engine"],
        rest_port=given["rest_port"],
        grpc_port=given["grpc_port"],
        switches=tuple(given["assignments"]),
        log_level=given["log_level"],
        arguments={
            "apiserver": ["--cluster-objects"],
            # The key of the mesh's authority lies beside the tokens; only this process is given it.
            "controllers": [
                "--custom-resources",
                *("--cluster-signing-cert-file", str(given["data"].absolute() / "credentials" / "ca.crt")),
                *("--cluster-signing-key-file", str(given["data"].absolute() / "credentials" / "ca.key")),
            ],
            "kubelet": [
                *(text for latency in given["latency"] for text in ("--latency", latency)),
                *(text for path in given["stages"] for text in ("--stages", str(path.absolute()))),
                *(["--static-pods", str(given["static_pods"].absolute())] if given["static_pods"] else []),
                *(["--device-sockets"] if given["device_sockets"] else []),
                *("--node-events", "all", "--completion-s", "1"),
            ],
        },
        schedulers=schedulers,
        roles=given["roles"],
        serves_clients=True,
        security=given["security"],
        certificate_life=timedelta(seconds=seconds_in(given["certificate_life"])),
    )
    return asyncio.run(_run(Supervisor(options), given["output"]))


async def _run(supervisor: Supervisor, output: str) -> int:
    stopping = asyncio.Event()
    received: list[int] = []

    def on_signal(number: int) -> None:
        received.append(number)
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal, number)
    start = asyncio.create_task(supervisor.start())
    waiting = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait([start, waiting], return_when=asyncio.FIRST_COMPLETED)
        if not start.done():
            click.echo("interrupted: stopping what was started", err=True)
            start.cancel()
            await asyncio.gather(start, return_exceptions=True)
            return EXIT_INTERRUPTED
        start.result()
        status = supervisor.status()
        if output == "json":
            print_json(status)
        else:
            _print(status, is_detached=False)
        sys.stdout.flush()
        await waiting
        if output != "json":
            click.echo("stopping")
        await supervisor.stop()
    finally:
        waiting.cancel()
    return EXIT_INTERRUPTED if received and received[0] == signal.SIGINT else EXIT_OK


def _shown(path: str) -> str:
    """Return a path as it is typed: from here if it is below, else from the root: the same from anywhere."""
    found = os.path.relpath(path)
    return path if found.startswith("..") else found


def _print(status: dict[str, Any], *, is_detached: bool) -> None:
    kubeconfig = _shown(status["kubeconfig"])
    click.echo(f"mesh is up: {len(status['processes'])} processes")
    click.echo(f"  kubeconfig   {kubeconfig}")
    click.echo(f"  REST         {status['rest_url']}")
    click.echo(f"  gRPC         {status['grpc_target']}")
    if status["security"] == "strict":
        click.echo("  security     strict: mutual TLS on every gRPC connection")
    click.echo(f"  logs         {_shown(status['data_dir'])}/logs")
    for user, path in status["token_files"].items():
        click.echo(f"  token        {_shown(path)} of {user}")
    click.echo(f"  try          kubectl --kubeconfig {kubeconfig} get nodes")
    data = _shown(status["data_dir"])
    stop = "keplab down" + ("" if data == ".keplab" else f" --data {data}")
    click.echo(f"  stop with    {stop if is_detached else 'Ctrl-C'}")


def _detach(given: dict[str, Any]) -> int:
    """Start ourselves again in the background and return when that mesh is ready."""
    data: Path = given["data"]
    pid = holder(data) if data.is_dir() else 0
    if pid:
        raise AlreadyRunning(f"a mesh already runs on {data} (pid {pid}); stop it with `keplab down`")
    arguments = []
    for option in COMMAND.params:
        value = (given | {"detach": False, "output": "json"})[option.name or ""]
        for each in value if isinstance(value, tuple) else (value,):
            if each is True:
                arguments.append(option.opts[-1])
            elif each is not None and each is not False:
                arguments += [option.opts[-1], str(each.absolute() if isinstance(each, Path) else each)]
    log_path = data / "logs" / "supervisor.log"
    try:
        log_path.parent.mkdir(parents=True, exist_ok=True)
        log = log_path.open("wb")
    except OSError as error:
        raise MeshError(f"{error.filename or data}: {error.strerror}") from None
    with log:
        child = subprocess.Popen(
            [sys.executable, "-m", "services.cli", "up", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    try:
        status = _wait_until_ready(child, data, log_path)
    except BaseException:
        child.terminate()
        child.wait()
        raise
    if given["output"] == "json":
        print_json(status)
    else:
        _print(status, is_detached=True)
    return EXIT_OK


def _wait_until_ready(child: subprocess.Popen[bytes], data: Path, log_path: Path) -> dict[str, Any]:
    deadline = time.monotonic() + DETACHED_READY_MAX_S
    while True:
        if child.poll() is not None:
            lines = [line for line in log_path.read_text("utf-8", "replace").splitlines() if line.strip()]
            raise MeshError(lines[-1].removeprefix("Error: ") if lines else f"the mesh ended with {child.returncode}")
        state = read_state(data)
        if state is not None and state.get("ready") and state.get("supervisor_pid") == child.pid:
            return state
        if time.monotonic() > deadline:
            raise MeshError(f"the mesh is not ready after {DETACHED_READY_MAX_S:g} s; see {log_path}")
        time.sleep(POLL_S)
