"""Second part of `keplab up`, after the directory is locked: check the options, and run the mesh in this process.

It is separate from the command, which locks the directory before it imports all this: a `keplab down` must find
a mesh that is only beginning.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from apiserver_fake.extensions.audit.policy import DEFAULT, read_policy
from kubelet.node.definition import NodeDefinition
from lab.cli.output import EXIT_INTERRUPTED, EXIT_OK, print_json, remark
from lab.cli.up_options import DEFAULT_AUDIT, UpOptions
from lab.simulator.config import PORT as SIMULATOR_PORT
from lab.simulator.settings import Settings, SettingsError, read_settings
from scheduler.configuration.parser import ConfigurationError
from scheduler.configuration.parser import read as read_configuration
from services.api.errors import UNREADABLE
from services.api.identity import EVERY_STAGE, Stages
from services.api.release import skew
from services.api.switches import EMULATED, Switches
from services.api.times import seconds_in
from services.kwok.definitions import choose_kinds
from services.kwok.documents import STAGE, KwokError, load
from services.kwok.stages.document import StageError, load_stages
from services.kwok.stages.rights import rights_of
from services.runtime.certificates import AUTHORITY_LIFE
from services.runtime.components import Schedulers, block_sizes
from services.runtime.config import PARENT_VARIABLE, MeshError
from services.runtime.credentials import FOLDER, PAGE_TOKEN_FILE
from services.runtime.mesh.options import MeshOptions
from services.runtime.real import write_atomically
from services.runtime.roles import read_role
from services.runtime.supervisor import Supervisor
from services.telemetry.pieces import MIB, Budget

LIFE_MIN_S = 30
SIMULATOR_FOLDER = "simulator"
NO_CONFIGURATION = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
PAGE_READY_MAX_S: Final = 30.0
PAGE_AGAIN_S: Final = 2.0
Show = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class UpPlan:
    """The checked options of `keplab up`, with the contents of the files that they name.

    `simulator`: how kube-scheduler-simulator's API is served, None if it is not; `simulator_port` is its port.
    `scheduler_config`: the scheduler's configuration file, None if not given. `etcd_servers`: URLs with commas
    between, "" for an etcd that keplab starts. `definitions`: nodes by host, {} if `options.nodes` is used instead.
    `crds`: KWOK's kinds whose objects take effect. `stage_rights`: permissions that hosts need for the stages.
    `usage_files`: KWOK's documents about the resource usage of pods. `audit_policy`: the path of the policy, "" for
    no audit log.
    """

    options: UpOptions
    simulator: Settings | None
    simulator_port: int
    scheduler_config: Path | None
    etcd_servers: str
    definitions: Mapping[str, Sequence[Mapping[str, object]]]
    crds: tuple[str, ...]
    stage_rights: Stages
    usage_files: tuple[Path, ...]
    audit_policy: str

    @property
    def simulator_folder(self) -> Path:
        """Folder in which the simulator's API keeps its files."""
        return self.options.data.absolute() / SIMULATOR_FOLDER


def check(options: UpOptions) -> UpPlan:
    """Return the plan of a mesh: read every file that the options name, and assign node definitions to hosts.

    Raises: UsageError naming option and file, SwitchError.
    """
    _check_life(options.certificate_life)
    _check_etcd(options)
    switches = Switches.parse(options.assignments)
    remark(switches)
    try:
        Schedulers(options.schedulers, others=options.extra_schedulers)
    except ValueError as error:
        raise click.UsageError(f"--extra-scheduler: {error}") from None
    for path in options.roles:
        try:
            read_role(path)
        except ValueError as error:
            raise click.UsageError(f"--role {error}") from None
    simulator = _simulator_settings(options)
    own = simulator or Settings()
    scheduler_config = options.scheduler_config or (Path(own.scheduler_config) if own.scheduler_config else None)
    _check_scheduler_config(scheduler_config)
    nodes_file, release = options.nodes_file, switches.choice(EMULATED)
    definitions = _definitions(nodes_file, options.hosts, release) if nodes_file is not None else {}
    if options.device_sockets and nodes_file is not None:
        raise click.UsageError("--device-sockets goes with --nodes; in a --nodes-file set deviceSocket of each node")
    try:
        crds = choose_kinds(options.enable_crds) if options.enable_crds else ()
    except ValueError as error:
        raise click.UsageError(f"--enable-crds {error}") from None
    try:
        rights = rights_of(load_stages(str(path) for path in options.stages))
        kwok = load((str(path) for path in options.stages), runs_commands=options.host_commands)
    except (StageError, KwokError) as error:
        raise click.UsageError(f"--stages {error}") from None
    port = options.simulator_api
    return UpPlan(
        options=options,
        simulator=simulator,
        simulator_port=port if port is not None else own.port or SIMULATOR_PORT,
        scheduler_config=scheduler_config,
        etcd_servers=options.etcd_servers or own.etcd_url,
        definitions=definitions,
        crds=crds,
        stage_rights=EVERY_STAGE if STAGE in crds else rights,
        usage_files=options.stages if kwok["ResourceUsage"] else (),
        audit_policy=_audit_policy(options.audit),
    )


def _check_scheduler_config(path: Path | None) -> None:
    """Read the scheduler's configuration; what plugins say of their arguments only the scheduler knows. Raises:
    UsageError."""
    if path is None:
        return
    try:
        read_configuration(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise click.UsageError(f"--scheduler-config {path}: not UTF-8") from None
    except OSError as error:
        raise click.UsageError(f"--scheduler-config {path}: {error.strerror}") from None
    except ConfigurationError as error:
        raise click.UsageError(f"--scheduler-config {path}: {error}") from None


def _simulator_settings(options: UpOptions) -> Settings | None:
    """Return how the simulator's API is served, as its own configuration says; None: it is not. Raises: UsageError."""
    path = options.simulator_config
    if path is None:
        if options.simulator_open and options.simulator_api is None:
            raise click.UsageError("--simulator-open needs --simulator-api")
        return Settings() if options.simulator_api is not None else None
    try:
        settings = read_settings(path)
    except SettingsError as error:
        raise click.UsageError(f"--simulator-config {error}") from None
    if settings.etcd_url and options.engine != "etcd":
        text = f"--simulator-config {path}: etcdURL {settings.etcd_url!r} needs --engine etcd"
        raise click.UsageError(f"{text}, and the engine is {options.engine}")
    return settings


def _simulator(plan: UpPlan, scheduler_config: Path | None) -> tuple[str, ...] | None:
    """Return the flags of the simulator API, None for no such process. `scheduler_config`: the file that it may
    change."""
    settings = plan.simulator
    if settings is None:
        return None
    flags = ["--port", str(plan.simulator_port), "--data-dir", str(plan.simulator_folder)]
    flags += ["--is-open"] if plan.options.simulator_open else []
    flags += ["--scheduler-config", str(scheduler_config)] if scheduler_config is not None else []
    flags += [text for origin in settings.cors_origins for text in ("--cors-origin", origin)]
    for flag, value in (
        ("--import-kubeconfig", settings.import_kubeconfig),
        ("--sync-kubeconfig", settings.sync_kubeconfig),
        ("--replay", settings.replay_file),
    ):
        flags += [flag, str(Path(value).absolute())] if value else []
    return (*flags, *(["--import-selector", settings.import_selector] if settings.import_selector else []))


def _own_configuration(plan: UpPlan) -> Path | None:
    """Return the file that the API may change and the scheduler reads, as the mesh begins with it; None for none.
    Raises: UsageError."""
    if plan.simulator is None or not plan.simulator.has_own_scheduler:
        return None
    folder, users_file = plan.simulator_folder, plan.scheduler_config
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / "start.json").unlink(missing_ok=True)
    path = folder / "scheduler.yaml"
    try:
        text = users_file.read_bytes() if users_file is not None else NO_CONFIGURATION
    except OSError as error:
        raise click.UsageError(f"--scheduler-config {users_file}: {error.strerror}") from None
    write_atomically(path, text, mode=0o600)
    return path


def _audit_policy(audit: str) -> str:
    """Return the path of the audit policy, "" for none. Raises: UsageError naming the file and the fault."""
    if not audit:
        return ""
    path = DEFAULT if audit == DEFAULT_AUDIT else Path(audit).absolute()
    try:
        read_policy(path)
    except ValueError as error:
        raise click.UsageError(f"--audit={error}") from None
    return str(path)


def _check_etcd(options: UpOptions) -> None:
    """Raises: UsageError for options of an etcd where there is none, or where it is another."""
    credentials = {"--etcd-user": options.etcd_user, **options.etcd_files}
    counts = {"--apiservers": options.apiservers, "--etcd-members": options.etcd_members}
    if options.engine != "etcd":
        texts = {"--etcd-servers": options.etcd_servers, "--etcd-prefix": options.etcd_prefix, **credentials}
        for flag, text in texts.items():
            if text:
                raise click.UsageError(f"{flag} needs --engine etcd, and the engine is {options.engine}")
        for flag, count in counts.items():
            if count > 1:
                raise click.UsageError(f"{flag} {count} needs --engine etcd, not {options.engine}")
    elif options.etcd_servers and options.etcd_members > 1:
        raise click.UsageError(
            "--etcd-members goes with an etcd that keplab starts, and --etcd-servers names a running one"
        )
    elif not options.etcd_servers:
        for flag, text in credentials.items():
            if text:
                raise click.UsageError(f"{flag} needs --etcd-servers: an etcd that keplab starts has its own")


def _check_life(text: str) -> None:
    """Raises: BadParameter for what is no life that certificates can have."""
    try:
        seconds = seconds_in(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--certificate-life") from None
    if not LIFE_MIN_S <= seconds <= AUTHORITY_LIFE.total_seconds():
        raise click.BadParameter(
            f"{text}: want at least {LIFE_MIN_S} s and at most ten years, the authority's own life",
            param_hint="--certificate-life",
        )


def _definitions(path: Path, hosts: int, release: str) -> dict[str, list[dict[str, object]]]:
    """Return the file's node definitions by host, dealt in blocks. `release`: the API server's.

    Raises: UsageError naming file and node.
    """
    try:
        documents = msgspec.json.decode(path.read_bytes(), type=list[dict[str, object]])
        nodes = [NodeDefinition.parse(definition) for definition in documents]
    except OSError as error:
        raise click.UsageError(f"--nodes-file {path}: {error.strerror}") from None
    except (*UNREADABLE, ValueError) as error:
        raise click.UsageError(f"--nodes-file {path}: {error}") from None
    names = [node.name for node in nodes]
    for i, node in enumerate(nodes):
        if node.name in names[:i]:
            raise click.UsageError(f"--nodes-file {path}: node {node.name} is defined twice")
        if node.version and (why := skew(node.version, release)):
            raise click.UsageError(f"--nodes-file {path}: node {node.name}: {why}")
    rest = iter(documents)
    return {f"h{i}": list(islice(rest, size)) for i, size in enumerate(block_sizes(len(documents), hosts))}


def attend(plan: UpPlan, lock_fd: int, show: Show) -> int:
    """Run the mesh until a signal; return the exit code. `lock_fd` locks the directory, `show` prints that it is up."""
    os.umask(0o077)  # what lies in the directory is for its owner
    options = plan.options
    supervisor = Supervisor(mesh_options(plan, _own_configuration(plan)), lock_fd)
    return asyncio.run(_run(supervisor, options.output, show, has_page=options.ui))


def mesh_options(plan: UpPlan, own: Path | None) -> MeshOptions:
    """Return the supervisor's options. `own`: the scheduler's configuration that the simulator's API may change, None
    if there is none.
    """
    options = plan.options
    configuration = own or (plan.scheduler_config.absolute() if plan.scheduler_config is not None else None)
    schedulers = Schedulers(
        options.schedulers,
        others=options.extra_schedulers,
        config=str(configuration) if configuration is not None else "",
    )
    own_schedulers = plan.simulator is None or plan.simulator.has_own_scheduler
    return MeshOptions(
        data_dir=options.data,
        nodes=0 if plan.definitions else options.nodes,
        hosts=options.hosts,
        definitions=plan.definitions,
        engine=options.engine,
        etcd_servers=plan.etcd_servers,
        etcd_members=options.etcd_members,
        apiservers=options.apiservers,
        rest_port=options.rest_port,
        grpc_port=options.grpc_port,
        switches=_switches(plan),
        log_level=options.log_level,
        arguments=_arguments(plan),
        schedulers=schedulers,
        without=frozenset() if own_schedulers else frozenset(each.name for each in schedulers.processes()),
        simulator_api=_simulator(plan, own),
        roles=options.roles,
        serves_clients=True,
        stages=plan.stage_rights,
        security=options.security,
        telemetry=Budget(options.telemetry_maxsize * MIB, options.telemetry_maxbackup),
        telemetry_mib_max=options.telemetry_total,
        certificate_life=timedelta(seconds=seconds_in(options.certificate_life)),
        has_faults=options.faults or options.ui,
    )


def _arguments(plan: UpPlan) -> dict[str, list[str]]:
    """Return the flags of the components."""
    options = plan.options
    host_commands = ["--host-commands"] if options.host_commands else []
    credentials = options.data.absolute() / "credentials"
    return {
        "apiserver": [
            "--cluster-objects",
            *_audit(plan),
            *_files("--kwok", plan.usage_files),
            *_crds(plan),
            *host_commands,
            *_etcd_access(options),
        ],
        # The key of the mesh's authority lies beside the tokens; only this process is given it.
        "controllers": [
            "--custom-resources",
            *("--cluster-signing-cert-file", str(credentials / "ca.crt")),
            *("--cluster-signing-key-file", str(credentials / "ca.key")),
            *_files("--stages", options.stages),
            *_crds(plan),
        ],
        "kubelet": [
            *(text for latency in options.latency for text in ("--latency", latency)),
            *_files("--stages", options.stages),
            *_crds(plan),
            *host_commands,
            *(["--static-pods", str(options.static_pods.absolute())] if options.static_pods else []),
            *(["--device-sockets"] if options.device_sockets else []),
            *("--node-events", "all", "--completion-s", "1"),
        ],
    }


def _switches(plan: UpPlan) -> tuple[str, ...]:
    """Return the switches of all processes: those that are set, and before them what other flags imply."""
    assignments = plan.options.assignments
    implied = {"scheduler.record=annotations": plan.simulator is not None, "telemetry.queue_moves=on": plan.options.ui}
    named = {each.partition("=")[0] for each in assignments}
    others = (each for each, is_implied in implied.items() if is_implied and each.partition("=")[0] not in named)
    return (*others, *assignments)


def _crds(plan: UpPlan) -> list[str]:
    """Return the flag by which objects of KWOK's kinds count."""
    return ["--enable-crds", ",".join(plan.crds)] if plan.crds else []


def _files(flag: str, paths: Iterable[Path]) -> list[str]:
    """Return a flag that may be repeated, once for each file."""
    return [word for path in paths for word in (flag, str(path.absolute()))]


def _audit(plan: UpPlan) -> list[str]:
    """Return the API server's flags for its audit log."""
    log = plan.options.data.absolute() / "audit" / "audit.log"
    policy = plan.audit_policy
    return ["--audit-policy-file", policy, "--audit-log-path", str(log)] if policy else []


def _etcd_access(options: UpOptions) -> list[str]:
    """Return the API servers' flags for how they reach an etcd."""
    files = {flag: str(Path(path).absolute()) if path else "" for flag, path in options.etcd_files.items()}
    texts = {"--etcd-prefix": options.etcd_prefix, "--etcd-user": options.etcd_user, **files}
    return [word for flag, text in texts.items() if text for word in (flag, text)]


class PageProcess:
    """The process `keplab ui` for the mesh on a data directory.

    Its token and port stay the same as long as the mesh runs.
    """

    def __init__(self, data: Path) -> None:
        self._data = data
        self._token = secrets.token_hex(32)
        self._port = 0
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Start the process; return the page's address once it answers. Raises: MeshError, OSError."""
        path = self._data / FOLDER / PAGE_TOKEN_FILE
        write_atomically(path, self._token.encode(), mode=0o600)
        address = await self._begin()
        self._port = int(address.partition("/ui/")[0].rpartition(":")[2])
        self._keeper = asyncio.create_task(self._keep())
        return f"{address.partition('#')[0]}#t={self._token}"

    async def _begin(self) -> str:
        log = (self._data / "logs" / "ui.log").open("ab")
        with log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "lab.cli",
                "ui",
                *("--data", str(self._data), "--port", str(self._port)),
                *("--token-file", str(self._data / FOLDER / PAGE_TOKEN_FILE), "--die-with-parent"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, PARENT_VARIABLE: str(os.getpid()), "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(PAGE_READY_MAX_S):
                line = (await self._process.stdout.readline()).decode().strip()
        except TimeoutError:
            line = ""
        if not line:
            await self.stop()
            raise MeshError(f"the live page did not start; see {self._data / 'logs' / 'ui.log'}")
        return line

    async def _keep(self) -> None:
        while self._process is not None:
            await self._process.wait()
            await asyncio.sleep(PAGE_AGAIN_S)
            with contextlib.suppress(MeshError, OSError):
                await self._begin()

    async def stop(self) -> None:
        """Stop the process."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()


async def _run(supervisor: Supervisor, output: str, show: Show, *, has_page: bool = False) -> int:
    stopping = asyncio.Event()
    received: list[int] = []

    def on_signal(number: int) -> None:
        received.append(number)
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal, number)
    page: PageProcess | None = None
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
        if has_page:
            page = PageProcess(supervisor.data_dir)
            try:
                supervisor.show_page(await page.start())
            except BaseException:
                await asyncio.shield(asyncio.ensure_future(supervisor.stop()))
                raise
        status = supervisor.status()
        if output == "json":
            print_json(status)
        else:
            show(status)
        sys.stdout.flush()
        await waiting
        if output != "json":
            click.echo("stopping")
        if page is not None:
            await page.stop()
        await supervisor.stop()
    finally:
        waiting.cancel()
    return EXIT_INTERRUPTED if received and received[0] == signal.SIGINT else EXIT_OK
