"""The mesh as real processes on this machine, with the interface of the simulated one.

Events are read from the processes' own files as they grow; the auditor judges a run of processes from
these lines alone.
"""

import asyncio
import shutil
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from kubelet.agent.node_files import path_of
from kubelet.deviceplugin.emulated.serving import command_plugin
from kubelet.dra.emulated.serving import command_driver
from kubelet.runtime.boots import BOOT_FILE
from lab.scenarios.corruption import corrupt_files
from lab.scenarios.mesh import MeshPlan, NotPossible, Progress, Site
from lab.scenarios.processes.event_files import Incomplete, Tail
from lab.scenarios.processes.machine_faults import StrikingFaultFiles, deliver_late_requests
from lab.scenarios.processes.newest_version import newest_version
from lab.scenarios.processes.nodes_ready import nodes_ready
from services.api.identity import ADMIN, Identity
from services.api.seams import EventLog
from services.api.wire import Api
from services.client.link_faults import HEALTHY, LinkFaults
from services.client.rpc import RpcTransport
from services.runtime.components import component_of
from services.runtime.config import MeshError
from services.runtime.machine import disk_error
from services.runtime.mesh.options import MeshOptions
from services.runtime.real import RealClock, seeded_random, write_atomically
from services.runtime.supervisor import Supervisor
from services.runtime.unix_sockets import UnixSockets
from services.telemetry.eventlog import FileEventLog, Line, NullEventLog, new_incarnation
from services.telemetry.pieces import KEEP_ALL

POLL_S = 0.5
SETTLED_NS = 500_000_000
"""Age in nanoseconds below which a line waits for the next poll, because another process's line may still
precede it.
"""
CORRUPTION_S = 0.5
"""Time for which a kubelet stays down while its files are corrupted, in seconds."""
RESTART_S = 0.2
"""Default time for which a process that was ended on purpose stays down, in seconds."""


class ProcessMesh:
    """`Mesh` on top of a `Supervisor`. The data directory is removed at the end unless one was given."""

    def __init__(
        self,
        plan: MeshPlan,
        *,
        identities: Sequence[Identity] = (),
        data_dir: Path | None = None,
        on_line: Callable[[Line], None] | None = None,
        resource: Mapping[str, str] | None = None,
    ) -> None:
        self.plan = plan
        self.clock = RealClock()
        self.failures: list[str] = []
        self.incomplete = ""
        """Which lines of the event log are missing: then the run shows neither success nor failure (I27)."""
        self._keeps_data = data_dir is not None
        self.data_dir = data_dir or Path(tempfile.mkdtemp(prefix="keplab-"))
        self._host_of = {str(node["name"]): host for host, nodes in plan.deal().items() for node in nodes}
        self._supervisor = Supervisor(
            MeshOptions(
                data_dir=self.data_dir,
                definitions=plan.deal(),
                engine=plan.engine,
                switches=plan.switches.assignments,
                arguments=_arguments(plan),
                stages=plan.stage_rights,
                identities=tuple(identities),
                schedulers=plan.schedulers,
                log_level="warning",
                has_faults=True,
                telemetry=KEEP_ALL,
                telemetry_mib_max=0,
                resource=resource or {},
            )
        )
        self._fault_files = StrikingFaultFiles(self._supervisor)
        self._transports: dict[str, RpcTransport] = {}
        self._tail = Tail(self.data_dir / "events")
        self._on_line = on_line
        self._auditing: asyncio.Task[None] | None = None
        self._delivering: asyncio.Task[None] | None = None
        self._chaos: EventLog = NullEventLog()

    def components(self) -> Sequence[str]:
        """Return the names of all processes, sorted."""
        return sorted(self._supervisor.children)

    def _name(self, component: str) -> str:
        kind, _, name = component.partition("/")
        if kind == "kubelet" and name in self._host_of:
            component = f"kubelet/{self._host_of[name]}"
        if component not in self._supervisor.children:
            raise ValueError(f"no process {component!r}; there are: {', '.join(self.components())}")
        return component

    def _host(self, node: str) -> str:
        if node not in self._host_of:
            raise ValueError(f"no node {node!r}; there are: {', '.join(self._host_of)}")
        return self._host_of[node]

    async def start(self) -> None:
        """Start all processes and wait until every node is Ready; after an error or Ctrl-C everything is removed."""
        try:
            await self._supervisor.start()
            incarnation = new_incarnation(seeded_random(None))
            self._chaos = FileEventLog(self.data_dir / "events", "chaos", self.clock, incarnation)
            self._auditing = asyncio.create_task(self._audit())
            self._delivering = asyncio.create_task(deliver_late_requests(self.data_dir / "run", self.api))
            await nodes_ready(self.api(ADMIN), self.clock, [str(node["name"]) for node in self.plan.nodes])
        except BaseException:
            await asyncio.shield(asyncio.ensure_future(self.stop()))
            raise

    def api(self, identity: Identity) -> Api:
        """Return the API server as that identity reaches it; each identity has one connection."""
        if identity.user not in self._transports:
            try:
                self._transports[identity.user] = self._supervisor.client_transport(identity.user)
            except KeyError as error:
                raise ValueError(str(error)) from None
        return self._transports[identity.user].api()

    def exit_codes(self, component: str) -> Sequence[int]:
        """Return the exit codes of the process's lives, except those that a signal ended."""
        return self._supervisor.child(self._name(component)).exit_codes

    async def command_plugin(self, node: str, resource: str, act: str, devices: tuple[str, ...]) -> None:
        """Make an emulated device plugin act. Raises: ValueError."""
        await command_plugin(UnixSockets(), str(self._supervisor.sockets_dir), node, resource, act, devices)

    async def command_driver(self, node: str, driver: str, act: str, words: tuple[str, ...]) -> None:
        """Make an emulated DRA driver act. Raises: ValueError."""
        await command_driver(UnixSockets(), str(self._supervisor.sockets_dir), node, driver, act, words)

    @property
    def progress(self) -> Progress:
        """Function with which the observer, the administrator's client, checks how far it has caught up."""
        return partial(newest_version, self.api(ADMIN), self._transports[ADMIN.user])

    async def kill(self, component: str, down_s: float | None, site: Site | None = None) -> None:
        """Send SIGKILL to one process; at a site, the process itself determines the moment."""
        name = self._name(component)
        self._report(name, {"what": "kill"})
        if site is None:
            self._send(name, signal.SIGKILL, down_s)
            return
        self._supervisor.child(name).next_down_s = down_s or RESTART_S
        await self._fault_files.strike_at(name, site, "kill")

    def _send(self, name: str, number: int, down_s: float | None = None) -> None:
        """Send a signal; what is down already stays down, as in a simulation."""
        with suppress(MeshError, ProcessLookupError):
            self._supervisor.kill(name, number, down_s=down_s)

    async def restart(self, component: str, switches: Sequence[str] = ()) -> None:
        """Send SIGTERM; return when the successor, with these switches, is ready."""
        name = self._name(component)
        self._report(name, {"what": "restart", **({"set": list(switches)} if switches else {})})
        try:
            await self._supervisor.restart(name, switches)
        except MeshError as error:
            raise NotPossible(str(error)) from None

    async def pause(self, component: str, duration_s: float, site: Site | None = None) -> None:
        """Send SIGSTOP, wait, and send SIGCONT."""
        name = self._name(component)
        if site is None:
            self._send(name, signal.SIGSTOP)
        else:
            await self._fault_files.strike_at(name, site, "pause")
        self._report(name, {"what": "pause"})
        try:
            await asyncio.sleep(duration_s)
        finally:
            self._send(name, signal.SIGCONT)
            self._report(name, {})

    async def reboot(self, component: str, down_s: float) -> None:
        """Send SIGKILL to a kubelet host, and start a new boot of its machine before it is back."""
        name = self._name(component)
        folder = self.data_dir / "kubelet" / name.partition("/")[2]
        if not folder.is_dir():
            raise NotPossible(f"{name} has no machine of its own to boot; want a kubelet")
        self._report(name, {"what": "boot"})
        self._send(name, signal.SIGKILL, down_s)
        write_atomically(folder / BOOT_FILE, f"{seeded_random(None).getrandbits(128):032x}".encode())

    async def corrupt(self, component: str, how: str, what: str) -> None:
        """Kill the host, and corrupt its checkpoint or its runtime's record before it is back."""
        name = self._name(component)
        pid = self._supervisor.child(name).pid
        self._report(name, {"what": "corrupt", "how": how, "file": what})
        self._supervisor.kill(name, signal.SIGKILL, down_s=CORRUPTION_S)
        while self._supervisor.child(name).pid == pid:  # noqa: ASYNC110  the kernel sends no notice
            await asyncio.sleep(0.01)
        folder = self.data_dir / "kubelet" / name.partition("/")[2]
        files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
        for file, data in corrupt_files(files, how, what).items():
            if data is None:
                (folder / file).unlink()
            else:
                write_atomically(folder / file, data)

    def link(self, component: str, faults: LinkFaults = HEALTHY) -> None:
        """Set the faults of the link between a process, or one node, and the API server; without any, heal it."""
        faults.check()
        faults.check_component(component)
        kind, _, node = component.partition("/")
        if kind == "node":
            name = f"kubelet/{self._host(node)}"
        else:
            name, node = self._name(component), ""
        if name == "apiserver":
            raise ValueError("the API server is no client, so it has no link; break the links of the others")
        self._report(f"link/{component if node else name}", faults.data())
        self._fault_files.link(name, node, faults)

    def _report(self, target: str, what: Mapping[str, object]) -> None:
        self._chaos.write("fault.inject" if what else "fault.heal", data={"target": target, **what})

    def set_clock(self, component: str, offset_s: float) -> None:
        """Offset the process's wall clock."""
        name = self._name(component)
        self._report(f"clock/{name}", {"offset_s": offset_s} if offset_s else {})
        self._fault_files.set(name, wall_offset_s=offset_s)

    def set_disk(self, component: str, error: str, slow_s: float) -> None:
        """Make every sync of a kubelet's disk fail, or take `slow_s` longer. Raises: NotPossible for others."""
        name = self._name(component)
        if component_of(name) != "kubelet":
            raise NotPossible(f"as processes only kubelets' disks can fail, not that of {name}; use the simulation")
        disk_error(error)
        self._report(f"disk/{name}", {"error": error, "slow_s": slow_s} if error or slow_s else {})
        self._fault_files.set(name, disk_error=error, disk_slow_s=slow_s)

    def has_machine(self, node: str) -> bool:
        """Return whether a kubelet hosts the node."""
        return node in self._host_of

    async def put_file(self, node: str, name: str, data: bytes | None) -> None:
        """Put a file into the directory of the node's process. Raises: ValueError."""
        path = self.data_dir / "kubelet" / self._host(node) / path_of(node, name)
        if data is None:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)

    async def _audit(self) -> None:
        while not self.incomplete:
            await asyncio.sleep(POLL_S)
            self._feed(int(self.clock.now() * 1e9) - SETTLED_NS)

    def _feed(self, before_ns: int | None) -> None:
        try:
            lines = self._tail.poll(before_ns)
        except Incomplete as error:
            self.incomplete = str(error)
            return
        if self._on_line is not None:
            for line in lines:
                self._on_line(line)

    async def stop(self) -> None:
        """Close connections, stop all processes, judge the last lines, remove the data directory."""
        for task in (self._auditing, self._delivering):
            if task is not None:
                task.cancel()
        for process in self._supervisor.status()["processes"]:
            if process["last_error"]:
                self.failures.append(f"{process['name']}: {process['last_error']}")
        for transport in self._transports.values():
            await transport.close()
        await self._supervisor.stop()
        self._feed(None)
        if not self._keeps_data:
            shutil.rmtree(self.data_dir, ignore_errors=True)


def _arguments(plan: MeshPlan) -> dict[str, list[str]]:
    """Return the arguments of single components and processes, beyond those that all get."""
    stages = [
        *(word for file in plan.stages for word in ("--stages", str(Path(file).absolute()))),
        *(("--stages-seed", str(plan.seed)) if plan.stages or plan.enable_crds else ()),
        *(("--enable-crds", ",".join(plan.enable_crds)) if plan.enable_crds else ()),
    ]
    arguments = {
        "apiserver": ["--log-watch-events"],  # so that streams are judged too (I15)
        "scheduler": ["--queue-moves"],  # for the times in the queue's pools
        "kubelet": [*(word for text in plan.latencies for word in ("--latency", text)), *stages],
        "controllers": stages,
    }
    if usage_files := plan.usage_files:
        arguments["apiserver"] += [word for file in usage_files for word in ("--kwok", str(Path(file).absolute()))]
        arguments["apiserver"] += ["--kwok-seed", str(plan.seed)]
    if plan.enable_crds:
        arguments["apiserver"] += ["--enable-crds", ",".join(plan.enable_crds), "--kwok-seed", str(plan.seed)]
    if plan.window_s is not None:
        arguments["apiserver"] += ["--window-s", str(plan.window_s), "--window-changes", "0"]
    for name, words in plan.own_switches:
        arguments.setdefault(name, []).extend(flag for word in words for flag in ("--set", word))
    return arguments
