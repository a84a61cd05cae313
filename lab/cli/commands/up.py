"""`keplab up`: run the mesh as processes on this machine."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from lab.cli.output import EXIT_INTERRUPTED, EXIT_OK, data_option, output_option, print_json, set_option, takes
from lab.cli.up_options import DEFAULT_AUDIT, UpOptions
from lab.experiments.wording import count_text
from lab.simulator.config import PORT as SIMULATOR_PORT
from services.api.switches import SwitchError
from services.runtime.config import MeshError
from services.runtime.mesh_directory import LOCK_FILE, discard_lock, lock, make_data_directory, read_state, write_holder
from services.telemetry.pieces import DIRECTORY_MIB_MAX, PIECE_MIB_MAX, PIECES_KEPT, make_private

DETACHED_READY_MAX_S = 120.0
POLL_S = 0.05
OWN_OPTIONS = ("detach", "lock_fd", "output")
"""Options that the parent does not pass on to the process in the background."""
STOPPED = (EXIT_INTERRUPTED, -signal.SIGTERM, -signal.SIGINT)


EPILOG = """\
\b
Examples:
  keplab up
  keplab up --nodes 1000 --engine memory
  keplab up --engine etcd --etcd-members 3 --apiservers 2
  keplab up --detach && kubectl --kubeconfig .keplab/kubeconfig get nodes
  keplab up --set kubelet.on_reject=unbind --set scheduler.exclusion=soft
  keplab up --scheduler-config experiments/profiles/two.yaml
  keplab up --schedulers 2 --extra-scheduler second
  keplab up --security strict --certificate-life 24h
  keplab up --stages experiments/stages/pod-fast.yaml
  keplab up --nodes 2 --device-sockets
  keplab up --ui
  keplab up --role examples/train-job/role.yaml --set reserved_for.mode=kep5194 --set GenericWorkload=true
  keplab up --simulator-api --simulator-open
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
@click.option(
    "--hosts", type=click.IntRange(0, 64), default=0, help="number of kubelet processes that host the nodes [3]"
)
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
@click.option(
    "--engine", type=click.Choice(["memory", "sqlite", "etcd"]), default="sqlite", show_default=True, help="store"
)
@click.option(
    "--etcd-servers",
    metavar="URLS",
    default="",
    help="URLs of the members of etcd for --engine etcd [an etcd that the command starts]",
)
@click.option("--etcd-prefix", metavar="KEY", default="", help="prefix of the mesh's keys in etcd [/registry]")
@click.option(
    "--etcd-cafile",
    metavar="FILE",
    default="",
    help="certificate of the authority that signed the certificates of etcd's members",
)
@click.option("--etcd-certfile", metavar="FILE", default="", help="client certificate of the API servers for etcd")
@click.option("--etcd-keyfile", metavar="FILE", default="", help="private key of that client certificate")
@click.option(
    "--etcd-user", metavar="NAME", default="", help="user name for an etcd that authenticates users by passwords"
)
@click.option("--etcd-password-file", metavar="FILE", default="", help="file with the password of --etcd-user")
@click.option(
    "--etcd-members",
    type=click.IntRange(1, 9),
    default=1,
    help="number of members of the etcd that the command starts [1]",
)
@click.option(
    "--apiservers", type=click.IntRange(1, 9), default=1, help="number of API servers that share the etcd [1]"
)
@click.option(
    "--simulator-api",
    is_flag=False,
    flag_value=SIMULATOR_PORT,
    default=None,
    type=click.IntRange(0, 65535),
    metavar="[=PORT]",
    help=f"also serve kube-scheduler-simulator's HTTP API, on this port [{SIMULATOR_PORT}]",
)
@click.option("--simulator-open", is_flag=True, help="let callers use the simulator's API without a token")
@click.option(
    "--simulator-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="kube-scheduler-simulator's own configuration, a SimulatorConfiguration",
)
@data_option
@click.option("--rest-port", type=click.IntRange(0, 65535), default=0, help="port for kubectl [any free]")
@click.option("--grpc-port", type=click.IntRange(0, 65535), default=0, help="port for the mesh itself [any free]")
@set_option
@click.option(
    "--latency",
    multiple=True,
    metavar="STAGE=DISTRIBUTION",
    help="time that kubelets take for a stage; may be repeated",
)
@click.option(
    "--stages",
    "--kwok",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="KWOK documents: Stages, which move pods and nodes instead of emulated containers, and its other kinds; "
    "may be repeated",
)
@click.option(
    "--enable-crds",
    multiple=True,
    metavar="KIND,…",
    help="kinds of KWOK, Stage or ResourceUsage for example, or all, to serve as custom resources; their objects take "
    "effect at once; may be repeated",
)
@click.option(
    "--host-commands",
    is_flag=True,
    help="run the commands of KWOK's Execs with `local` and of PortForwards on this machine",
)
@click.option(
    "--static-pods",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="directory of manifests of static pods: its files for all nodes, a folder named after a node for that node",
)
@click.option(
    "--device-sockets",
    is_flag=True,
    help="let device plugins (`keplab device-plugin`) and DRA drivers (`keplab dra-driver`) register with the nodes",
)
@click.option(
    "--security",
    type=click.Choice(["tokens", "strict"]),
    default="tokens",
    show_default=True,
    help="strict: mutual TLS on every gRPC connection; tokens: plain connections, callers authenticate by tokens",
)
@click.option(
    "--certificate-life",
    metavar="DURATION",
    default="8760h",
    show_default=True,
    help="lifetime of certificates; the mesh renews one when a third of its lifetime is left, at most 30 days before "
    "it expires",
)
@click.option(
    "--audit",
    is_flag=False,
    flag_value=DEFAULT_AUDIT,
    default="",
    metavar="[=POLICY]",
    help="keep an audit log below the data directory: the metadata of every request, or what a Policy file says",
)
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="file with the role of a controller of your own, which gets a token; may be repeated",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="level of the processes' log files",
)
@click.option(
    "--telemetry-maxsize",
    type=click.IntRange(0),
    default=PIECE_MIB_MAX,
    show_default=True,
    metavar="MIB",
    help="size in MiB at which an event, span or log file is closed and a new one begun; 0: never",
)
@click.option(
    "--telemetry-maxbackup",
    type=click.IntRange(0),
    default=PIECES_KEPT,
    show_default=True,
    metavar="N",
    help="number of closed files that are kept for each process and sort; 0: all",
)
@click.option(
    "--telemetry-total",
    type=click.IntRange(0),
    default=DIRECTORY_MIB_MAX,
    show_default=True,
    metavar="MIB",
    help="limit in MiB on the events, spans and logs of all processes together; 0: no limit",
)
@click.option(
    "--faults", is_flag=True, help="let links between processes be cut and slowed (`keplab ui --allow-break`)"
)
@click.option(
    "--ui",
    is_flag=True,
    help="also serve the live page; implies --faults, and writes every move in the scheduling queue as an event line",
)
@click.option("--lock-fd", type=int, default=-1, hidden=True)
@click.option("--detach", is_flag=True, help="return when the mesh is ready, and leave it running")
@output_option
@takes(UpOptions)
def up(options: UpOptions) -> int:
    """Start a mesh of processes on this machine.

    The processes are an API server, a scheduler, controllers, and kubelets that host emulated nodes. The mesh runs
    until Ctrl-C, or with --detach until `keplab down`. kubectl, client-go and other clients reach it with the
    kubeconfig that the command writes. The state stays in the data directory, and the next `keplab up` continues from
    it.
    """
    is_first = not (options.data / LOCK_FILE).exists()
    is_of_parent = options.lock_fd >= 0
    is_new, fd = _lock_directory(options.data, options.lock_fd)
    try:
        from lab.cli.up_process import attend, check

        plan = check(options)
    except (click.ClickException, SwitchError):
        if is_first:
            discard_lock(options.data, is_new=is_new)
        os.close(fd)
        raise
    if options.detach:
        return _detach(options, fd)
    # What the parent prints has the page's token, and the output of this process is a log.
    return attend(plan, fd, _silent if is_of_parent else lambda status: _print(status, is_detached=False))


def _lock_directory(data: Path, lock_fd: int) -> tuple[bool, int]:
    """Return whether the directory is new, and what holds it from now on: a `keplab down` finds a mesh that has only
    begun to start."""
    if lock_fd >= 0:
        return False, lock_fd
    try:
        return make_data_directory(data), lock(data)
    except OSError as error:
        raise MeshError(f"{error.filename or data}: {error.strerror}") from None


def _display_path(path: str) -> str:
    """Return a path as it is typed: from here if it is below, else from the root: the same from anywhere."""
    found = os.path.relpath(path)
    return path if found.startswith("..") else found


def _silent(_: dict[str, Any]) -> None:
    """Print nothing."""


def _print(status: dict[str, Any], *, is_detached: bool) -> None:
    kubeconfig = _display_path(status["kubeconfig"])
    click.echo(f"mesh is up: {count_text(len(status['processes']), 'process', 'processes')}")
    click.echo(f"  kubeconfig   {kubeconfig}")
    click.echo(f"  REST         {status['rest_url']}")
    click.echo(f"  gRPC         {status['grpc_target']}")
    if status["security"] == "strict":
        click.echo("  security     strict: mutual TLS on every gRPC connection")
    if status["page"]:
        click.echo(f"  page         {status['page']}")
    for process in status["processes"]:
        if process["name"] == "simulator-api":
            click.echo(f"  simulator    http://127.0.0.1:{process['ports'].get('http', 0)}/api/v1")
    click.echo(f"  logs         {_display_path(status['data_dir'])}/logs")
    for user, path in status["token_files"].items():
        click.echo(f"  token        {_display_path(path)} of {user}")
    click.echo(f"  try          kubectl --kubeconfig {kubeconfig} get nodes")
    data = _display_path(status["data_dir"])
    stop = "keplab down" + ("" if data == ".keplab" else f" --data {data}")
    click.echo(f"  stop with    {stop if is_detached else 'Ctrl-C'}")


def words_of(options: UpOptions) -> list[str]:
    """Return these options, without OWN_OPTIONS, as words for a process in the same working directory."""
    words: list[str] = []
    values = asdict(options)
    for option in up.params:
        name = option.name or ""
        if name in OWN_OPTIONS:
            continue
        value = values[name]
        for argument in value if isinstance(value, tuple) else (value,):
            if argument is True:
                words.append(option.opts[-1])
            elif argument is not None and argument is not False:
                words += [option.opts[-1], str(argument.absolute() if isinstance(argument, Path) else argument)]
    return words


def _detach(options: UpOptions, fd: int) -> int:
    """Start ourselves again in the background, as the directory's holder, and return when that mesh is ready."""
    data = options.data
    os.umask(0o077)
    log_path = data / "logs" / "supervisor.log"
    try:
        make_private(log_path.parent)
        log = log_path.open("wb")
    except OSError as error:
        raise MeshError(f"{error.filename or data}: {error.strerror}") from None
    with log:
        child = subprocess.Popen(
            [sys.executable, "-m", "lab.cli", "up", "--lock-fd", str(fd), *words_of(options)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=(fd,),
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    write_holder(fd, child.pid)
    os.close(fd)
    try:
        status = _wait_until_ready(child, data, log_path, has_page=options.ui)
    except BaseException:
        child.terminate()
        child.wait()
        raise
    if options.output == "json":
        print_json(status)
    else:
        _print(status, is_detached=True)
    return EXIT_OK


def _wait_until_ready(child: subprocess.Popen[bytes], data: Path, log_path: Path, *, has_page: bool) -> dict[str, Any]:
    deadline = time.monotonic() + DETACHED_READY_MAX_S
    while True:
        if child.poll() is not None:
            if child.returncode in STOPPED:
                raise MeshError("the mesh was stopped while it was starting")
            lines = [line for line in log_path.read_text("utf-8", "replace").splitlines() if line.strip()]
            raise MeshError(lines[-1].removeprefix("Error: ") if lines else f"the mesh ended with {child.returncode}")
        state = read_state(data)
        is_up = state is not None and state.get("ready") and state.get("supervisor_pid") == child.pid
        if is_up and state is not None and (state.get("page") or not has_page):
            return state
        if time.monotonic() > deadline:
            raise MeshError(f"the mesh is not ready after {DETACHED_READY_MAX_S:g} s; see {log_path}")
        time.sleep(POLL_S)
