"""What `keplab up` does once the directory is held: checks what was asked for, and runs the mesh in this process.

Apart from the command, which takes the directory before it imports all this: a `keplab down` must find a mesh that
is only beginning.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import sys
from collections.abc import Callable, Iterable
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from apiserver_fake.extensions.audit.policy import DEFAULT, read_policy
from kubelet.node.definition import NodeDefinition
from lab.cli.output import EXIT_INTERRUPTED, EXIT_OK, print_json, remark
from lab.simulator.config import PORT as SIMULATOR_PORT
from lab.simulator.settings import Settings, SettingsError, read_settings
from scheduler.configuration.parser import ConfigurationError
from scheduler.configuration.parser import read as read_configuration
from services.api.errors import UNREADABLE
from services.api.identity import EVERY_STAGE
from services.api.release import skew
from services.api.switches import EMULATED, Switches
from services.api.times import seconds_in
from services.kwok.definitions import chosen
from services.kwok.documents import STAGE, KwokError, load
from services.kwok.stages.document import StageError, load_stages
from services.kwok.stages.rights import rights_of
from services.runtime.certificates import AUTHORITY_LIFE
from services.runtime.components import Schedulers
from services.runtime.config import PARENT_VARIABLE, MeshError
from services.runtime.credentials import FOLDER, PAGE_TOKEN_FILE
from services.runtime.real import write_atomically
from services.runtime.roles import read_role
from services.runtime.supervisor import MeshOptions, Supervisor, block_sizes
from services.telemetry.pieces import MIB, Budget

LIFE_MIN_S = 30
DEFAULT_AUDIT = "default"
"""The value of `--audit` without a policy."""
SIMULATOR_FOLDER = "simulator"
NO_CONFIGURATION = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
PAGE_READY_MAX_S: Final = 30.0
PAGE_AGAIN_S: Final = 2.0
Show = Callable[[dict[str, Any]], None]
ETCD_FILES = ("etcd_cafile", "etcd_certfile", "etcd_keyfile", "etcd_password_file")
ETCD_ACCESS = ("etcd_prefix", "etcd_user", *ETCD_FILES)
"""How the API servers reach an etcd: options that are flags of theirs."""


def check(given: dict[str, Any]) -> None:
    """Check the options of `keplab up`, and replace the path of node definitions by what it says, dealt to hosts.
    Raises: UsageError naming option and file."""
    _check_life(given["certificate_life"])
    _check_etcd(given)
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
    _check_simulator(given)
    _check_scheduler_config(given["scheduler_config"])
    release = Switches.parse(given["assignments"]).choice(EMULATED)
    given["definitions"] = _definitions(given["nodes_file"], given["hosts"], release) if given["nodes_file"] else {}
    if given["device_sockets"] and given["nodes_file"]:
        raise click.UsageError("--device-sockets is about --nodes; in a --nodes-file say deviceSocket of each node")
    try:
        crds = given["crds"] = chosen(given["enable_crds"]) if given["enable_crds"] else ()
    except ValueError as error:
        raise click.UsageError(f"--enable-crds {error}") from None
    try:
        rights = rights_of(load_stages(str(path) for path in given["stages"]))
        given["stage_rights"] = EVERY_STAGE if STAGE in crds else rights
        kwok = load((str(path) for path in given["stages"]), runs_commands=given["host_commands"])
        given["usage_files"] = given["stages"] if kwok["ResourceUsage"] else ()
    except (StageError, KwokError) as error:
        raise click.UsageError(f"--stages {error}") from None
    given["audit"] = _audit_policy(given["audit"])


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


def _check_simulator(given: dict[str, Any]) -> None:
    """Read the simulator's own configuration. Raises: UsageError."""
    path = given["simulator_config"]
    given["simulator"] = None
    if path is None:
        if given["simulator_open"] and given["simulator_api"] is None:
            raise click.UsageError("--simulator-open is about --simulator-api")
        given["simulator"] = Settings() if given["simulator_api"] is not None else None
        return
    try:
        found = given["simulator"] = read_settings(path)
    except SettingsError as error:
        raise click.UsageError(f"--simulator-config {error}") from None
    if found.etcd_url and given["engine"] != "etcd":
        text = f"--simulator-config {path}: etcdURL {found.etcd_url!r} is about --engine etcd"
        raise click.UsageError(f"{text}, and the engine is {given['engine']}")
    if found.etcd_url and not given["etcd_servers"]:
        given["etcd_servers"] = found.etcd_url
    if found.scheduler_config and given["scheduler_config"] is None:
        given["scheduler_config"] = Path(found.scheduler_config)
    if given["simulator_api"] is None:
        given["simulator_api"] = found.port or SIMULATOR_PORT


def _simulator(given: dict[str, Any], scheduler_config: Path | None) -> tuple[str, ...] | None:
    """Return the flags of the simulator API, None for no such process."""
    settings: Settings | None = given["simulator"]
    if settings is None:
        return None
    flags = ["--port", str(given["simulator_api"]), "--data-dir", str(given["data"].absolute() / SIMULATOR_FOLDER)]
    flags += ["--is-open"] if given["simulator_open"] else []
    flags += ["--scheduler-config", str(scheduler_config)] if scheduler_config is not None else []
    flags += [text for origin in settings.cors_origins for text in ("--cors-origin", origin)]
    for flag, value in (
        ("--import-kubeconfig", settings.import_kubeconfig),
        ("--sync-kubeconfig", settings.sync_kubeconfig),
        ("--replay", settings.replay_file),
    ):
        flags += [flag, str(Path(value).absolute())] if value else []
    return (*flags, *(["--import-selector", settings.import_selector] if settings.import_selector else []))


def _own_configuration(given: dict[str, Any]) -> Path | None:
    """Return the file that the API may change and the scheduler reads, as the mesh begins with it; None for none.
    Raises: UsageError."""
    settings: Settings | None = given["simulator"]
    if settings is None or not settings.has_own_scheduler:
        return None
    folder: Path = given["data"].absolute() / SIMULATOR_FOLDER
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / "start.json").unlink(missing_ok=True)
    path, given_file = folder / "scheduler.yaml", given["scheduler_config"]
    try:
        text = given_file.read_bytes() if given_file is not None else NO_CONFIGURATION
    except OSError as error:
        raise click.UsageError(f"--scheduler-config {given_file}: {error.strerror}") from None
    write_atomically(path, text, mode=0o600)
    return path


def _audit_policy(given: str) -> str:
    """Return the path of the audit policy, "" for none. Raises: UsageError naming the file and the fault."""
    if not given:
        return ""
    path = DEFAULT if given == DEFAULT_AUDIT else Path(given).absolute()
    try:
        read_policy(path)
    except ValueError as error:
        raise click.UsageError(f"--audit={error}") from None
    return str(path)


def _check_etcd(given: dict[str, Any]) -> None:
    if given["engine"] != "etcd":
        for name in ("etcd_servers", *ETCD_ACCESS):
            if given[name]:
                raise click.UsageError(f"{_flag(name)} is about --engine etcd, and the engine is {given['engine']}")
        for name in ("apiservers", "etcd_members"):
            if given[name] > 1:
                raise click.UsageError(f"{_flag(name)} {given[name]} needs --engine etcd, not {given['engine']}")
    elif given["etcd_servers"] and given["etcd_members"] > 1:
        raise click.UsageError(
            "--etcd-members is about an etcd that is started, and --etcd-servers names one that runs"
        )
    elif not given["etcd_servers"]:
        for name in ETCD_ACCESS[1:]:
            if given[name]:
                raise click.UsageError(f"{_flag(name)} needs --etcd-servers: the etcd that is started has its own")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


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
        found = msgspec.json.decode(path.read_bytes(), type=list[dict[str, object]])
        nodes = [NodeDefinition.parse(definition) for definition in found]
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
    rest = iter(found)
    return {f"h{i}": list(islice(rest, size)) for i, size in enumerate(block_sizes(len(found), hosts))}


def attend(given: dict[str, Any], lock_fd: int, show: Show) -> int:
    """Run the mesh until a signal; return the exit code. `lock_fd` holds the directory, `show` prints that it is up."""
    os.umask(0o077)  # what lies in the directory is for its owner
    own = _own_configuration(given)
    configuration = own or (given["scheduler_config"].absolute() if given["scheduler_config"] else None)
    schedulers = Schedulers(
        given["schedulers"],
        others=given["extra_schedulers"],
        config=str(configuration) if configuration is not None else "",
    )
    settings: Settings | None = given["simulator"]
    own_schedulers = settings is None or settings.has_own_scheduler
    host_commands = ["--host-commands"] if given["host_commands"] else []
    options = MeshOptions(
        data_dir=given["data"],
        nodes=0 if given["definitions"] else given["nodes"],
        hosts=given["hosts"],
        definitions=given["definitions"],
        engine=given["engine"],
        etcd_servers=given["etcd_servers"],
        etcd_members=given["etcd_members"],
        apiservers=given["apiservers"],
        rest_port=given["rest_port"],
        grpc_port=given["grpc_port"],
        switches=_switches(given),
        log_level=given["log_level"],
        arguments={
            "apiserver": [
                "--cluster-objects",
                *_audit(given),
                *_files("--kwok", given["usage_files"]),
                *_crds(given),
                *host_commands,
                *(text for name in ETCD_ACCESS if given[name] for text in (_flag(name), _value(name, given[name]))),
            ],
            # The key of the mesh's authority lies beside the tokens; only this process is given it.
            "controllers": [
                "--custom-resources",
                *("--cluster-signing-cert-file", str(given["data"].absolute() / "credentials" / "ca.crt")),
                *("--cluster-signing-key-file", str(given["data"].absolute() / "credentials" / "ca.key")),
                *_files("--stages", given["stages"]),
                *_crds(given),
            ],
            "kubelet": [
                *(text for latency in given["latency"] for text in ("--latency", latency)),
                *_files("--stages", given["stages"]),
                *_crds(given),
                *host_commands,
                *(["--static-pods", str(given["static_pods"].absolute())] if given["static_pods"] else []),
                *(["--device-sockets"] if given["device_sockets"] else []),
                *("--node-events", "all", "--completion-s", "1"),
            ],
        },
        schedulers=schedulers,
        without=frozenset() if own_schedulers else frozenset(each.name for each in schedulers.processes()),
        simulator_api=_simulator(given, own),
        roles=given["roles"],
        serves_clients=True,
        stages=given["stage_rights"],
        security=given["security"],
        telemetry=Budget(given["telemetry_maxsize"] * MIB, given["telemetry_maxbackup"]),
        telemetry_mib_max=given["telemetry_total"],
        certificate_life=timedelta(seconds=seconds_in(given["certificate_life"])),
        has_faults=given["faults"] or given["ui"],
    )
    return asyncio.run(_run(Supervisor(options, lock_fd), given["output"], show, has_page=given["ui"]))


def _switches(given: dict[str, Any]) -> tuple[str, ...]:
    """Return the switches of all processes: those that are given, and before them what other flags ask for."""
    asked = {"scheduler.record=annotations": given["simulator"] is not None, "telemetry.queue_moves=on": given["ui"]}
    named = {each.partition("=")[0] for each in given["assignments"]}
    implied = (each for each, is_asked in asked.items() if is_asked and each.partition("=")[0] not in named)
    return (*implied, *given["assignments"])


def _crds(given: dict[str, Any]) -> list[str]:
    """Return the flag by which objects of KWOK's kinds count."""
    return ["--enable-crds", ",".join(given["crds"])] if given["crds"] else []


def _files(flag: str, paths: Iterable[Path]) -> list[str]:
    """Return a flag that may be repeated, once for each file."""
    return [word for path in paths for word in (flag, str(path.absolute()))]


def _audit(given: dict[str, Any]) -> list[str]:
    """Return the API server's flags for its audit log."""
    log = given["data"].absolute() / "audit" / "audit.log"
    policy = given["audit"]
    return ["--audit-policy-file", policy, "--audit-log-path", str(log)] if policy else []


def _value(name: str, text: str) -> str:
    return str(Path(text).absolute()) if name in ETCD_FILES else text


class PageProcess:
    """`keplab ui` of the mesh on a data directory. Its token and its port stay the same as long as the mesh runs."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._token = secrets.token_hex(32)
        self._port = 0
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Return the address that opens it, once it answers. Raises: MeshError, OSError."""
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
        """End it."""
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
