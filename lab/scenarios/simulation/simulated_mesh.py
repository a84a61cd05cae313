"""The mesh in one virtual loop: the same wirings as the processes, over simulated seams.

Each component is a `_Process`: a build function, a disk image that survives restarts, and at most one
living incarnation. A supervisor restarts ended components after the back-off of guarantees P14.
"""

import asyncio
import contextvars
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import msgspec

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.wiring import build as build_apiserver
from claim_controller.config import ClaimControllerConfig
from claim_controller.wiring import build as build_claim_controller
from kubelet.agent.node_files import POWER, path_of
from kubelet.config import KubeletConfig
from kubelet.deviceplugin.emulated.serving import PluginConfig, command_plugin
from kubelet.deviceplugin.emulated.serving import build as build_plugin
from kubelet.dra.emulated.serving import DriverConfig, command_driver
from kubelet.dra.emulated.serving import build as build_driver
from kubelet.node.definition import NodeDefinition
from kubelet.runtime.boots import BOOT_FILE
from kubelet.wiring import build as build_kubelet
from lab.scenarios.corruption import corrupt_files
from lab.scenarios.initial_state import State
from lab.scenarios.mesh import MeshPlan, NotPossible, Site
from lab.scenarios.simulation.copied_disks import node_files, store_files
from lab.scenarios.simulation.disk import DiskFile, DiskImage, SimDisk
from lab.scenarios.simulation.lifetime import Aside, Lifetime, LivingLines, SimClock
from lab.scenarios.simulation.network import Network, SimApi, SimTransport
from lab.scenarios.simulation.simloop import OWNER, SimLoop
from lab.scenarios.simulation.sockets import MachineSockets, SimSockets
from lab.scenarios.simulation.traffic import ArrivalRecorder, Traffic
from scheduler.config import SchedulerConfig
from scheduler.wiring import build as build_scheduler
from services.api.identity import CLAIM_MANAGER, SCHEDULER, Hosting, Identity, driver_identity, host_identity
from services.api.seams import Component, EventLog, Seams
from services.api.switches import Switches
from services.api.wire import Api
from services.client.gate import Gates
from services.client.leases import LeadershipLost
from services.client.link_faults import HEALTHY, LinkFaults
from services.client.tracing_transport import TracedTransport
from services.controllers.config import ControllersConfig
from services.controllers.wiring import build as build_controllers
from services.controllers.wiring import without_rest
from services.runtime.components import CLAIM_CONTROLLER, component_of, driver_name, plugin_name, plugins_of
from services.runtime.config import EXIT_BUG, EXIT_DEPOSED, EXIT_OK, MeshError, StartError
from services.runtime.machine import disk_error
from services.runtime.roles import claim_controller_identities, controller_identities
from services.telemetry.eventlog import Line, MemoryEventLog, MemoryEvents
from services.telemetry.spans import service_attributes
from services.telemetry.traces import MemorySpans, Tracer

WALL_BASE_S = 1_767_225_600.0
"""2026-01-01T00:00:00Z: wall-clock time when virtual time begins."""
START_MIN_S, START_MAX_S = 0.05, 0.25
RESTART_BACKOFF_MIN_S, RESTART_BACKOFF_MAX_S = 0.2, 5.0
READY_POLL_S = 0.05
READY_LIMIT_S = 60.0
STOP_MAX_S = 10.0
"""Longest orderly shutdown of a component in seconds, the same as for a process (`services.runtime.process`)."""

Build = Callable[[Seams], Component]


class _Process:
    """One component over all its incarnations."""

    def __init__(
        self, name: str, build: Build, main: Identity, others: Sequence[Identity], clock: SimClock, switches: Switches
    ) -> None:
        self.name, self.build, self.main, self.others, self.clock = name, build, main, others, clock
        self.switches = switches
        """Of its next life."""
        self.disk_image = DiskImage()
        self.incarnations = 0
        self.life: Lifetime | None = None
        self.component: Component | None = None
        self.task: asyncio.Task[None] | None = None
        self.keeper: asyncio.Task[None] | None = None
        self.down_until = 0.0
        self.gates = Gates(random.Random(f"gates/{name}"))
        self.exit_codes: list[int] = []
        self.sites: list[Callable[[str], None]] = []
        """Who waits for this component to pass somewhere."""

    def listen(self) -> None:
        """Report calls to the faults that wait for a site, as long as one does."""

        def on_call(when: str, what: str) -> None:
            for passed in list(self.sites):
                passed(f"{when}:{what}")

        self.gates.on_call = on_call if self.sites else None


class SimMesh:
    """`Mesh` in virtual time. Create and use it inside `simloop.run`."""

    def __init__(
        self,
        plan: MeshPlan,
        *,
        recorder: ArrivalRecorder | None = None,
        traffic: Traffic | None = None,
        on_move: Callable[[Line], None] | None = None,
    ) -> None:
        """Create the mesh. `on_move`: called with the lines about pods in the scheduling queue, which are in no log."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop), "a simulated mesh lives in virtual time"
        self._loop = loop
        self.plan = plan
        self._wall_base_s = plan.state.wall_s if plan.state is not None else WALL_BASE_S
        self.clock = SimClock(loop, self._wall_base_s)
        self._handlers: list[Callable[[Line], None]] = []
        self._on_move = on_move
        self.events = MemoryEvents(keep=False, on_line=self._on_line)
        self._chaos = MemoryEventLog("chaos", self.clock, into=self.events)
        self.spans = MemorySpans()
        self._resource = {**service_attributes(), **plan.origin} if plan.traced else {}
        self.failures: list[str] = []
        self._network = Network(random.Random(f"network/{plan.draws}"), recorder, traffic)
        self._sockets = MachineSockets(random.Random(f"sockets/{plan.draws}"))
        self._random = random.Random(f"mesh/{plan.draws}")
        self._processes: dict[str, _Process] = {}
        self._host_of: dict[str, str] = {}
        self._observer_life = Lifetime("observer", 1)
        quiet = self._network.profile("observer")
        quiet.latency_min_s = quiet.latency_max_s = 0.0
        self._declare()
        if plan.state is not None:
            self._fork(plan.state)
        for node in sorted(plan.off):
            self._host(node).disk_image.files[path_of(node, POWER)] = DiskFile(b"off")

    def _declare(self) -> None:
        def switches(name: str) -> tuple[str, ...]:
            return self.plan.switches_of(name).assignments

        own = switches("apiserver")
        api = ApiServerConfig(name="apiserver", engine="memory", grpc_port=None, rest_port=None, set=own)
        if usage_files := self.plan.usage_files:
            api = replace(api, kwok=usage_files, kwok_seed=self.plan.seed)
        if self.plan.enable_crds:
            api = replace(api, enable_crds=self.plan.enable_crds, kwok_seed=self.plan.seed)
        if self.plan.window_s is not None:
            api = replace(api, window_s=self.plan.window_s, window_changes=0)
        self._add("apiserver", partial(build_apiserver, api), Identity("system:apiserver"))
        for scheduler_process in self.plan.schedulers.processes():
            scheduler = SchedulerConfig(
                name=scheduler_process.name,
                scheduler_name=scheduler_process.scheduler_name,
                leader_elect=scheduler_process.is_elected,
                config=scheduler_process.config,
                queue_moves=self._on_move is not None,
                set=switches(scheduler_process.name),
            )
            self._add(scheduler_process.name, partial(build_scheduler, scheduler), SCHEDULER)
        # A state has what clients of REST made, and what their controllers made of it.
        wanted = without_rest() if self.plan.state is None else ControllersConfig.controllers
        manager = ControllersConfig(
            name="controllers",
            controllers=wanted,
            set=switches("controllers"),
            stages=self.plan.stages,
            stages_seed=self.plan.seed,
            enable_crds=self.plan.enable_crds,
        )
        identity = Identity("system:kube-controller-manager")
        self._add("controllers", partial(build_controllers, manager), identity, controller_identities())
        claims = ClaimControllerConfig(name=CLAIM_CONTROLLER, set=switches(CLAIM_CONTROLLER))
        self._add(claims.name, partial(build_claim_controller, claims), CLAIM_MANAGER, claim_controller_identities())
        stages = self.plan.stage_rights
        for host, nodes in self.plan.deal().items():
            definitions = tuple(NodeDefinition.parse(node) for node in nodes)
            config = KubeletConfig(
                name=host,
                definitions=definitions,
                latency=self.plan.latencies,
                stages=self.plan.stages,
                stages_seed=self.plan.seed,
                enable_crds=self.plan.enable_crds,
                set=switches(f"kubelet/{host}"),
                health_port=-1,
            )
            main = host_identity(host, Hosting(frozenset(str(node["name"]) for node in nodes), stages=stages))
            self._add(f"kubelet/{host}", partial(build_kubelet, config), main)
            self._host_of |= {str(node["name"]): host for node in nodes}
            self._processes[f"kubelet/{host}"].gates.on_late_request = self._network.deliver_late
            for node in nodes:
                self._add_plugins(node)
            for definition in definitions:
                self._add_drivers(definition)

    def _fork(self, state: State) -> None:
        """Have the disks hold what the mesh held whose state this is."""
        self._processes["apiserver"].disk_image.files.update(_as_files(store_files(state)))
        for host, nodes in self.plan.deal().items():
            files = node_files(state, (str(node["name"]) for node in nodes))
            self._processes[f"kubelet/{host}"].disk_image.files.update(_as_files(files))

    def _add_plugins(self, node: dict[str, object]) -> None:
        name = str(node["name"])
        for plugin in plugins_of(node):
            config = PluginConfig(
                name=plugin_name(name, str(plugin["resource"])),
                node=name,
                health_port=-1,
                definition=msgspec.json.encode(plugin).decode(),
                set=self.plan.switches.assignments,
            )
            self._add(config.name, partial(build_plugin, config), Identity(f"keplab:{config.name}"))

    def _add_drivers(self, node: NodeDefinition) -> None:
        for driver in node.drivers:
            config = DriverConfig(
                name=driver_name(node.name, driver.name),
                node=node.name,
                health_port=-1,
                definition=msgspec.json.encode(driver).decode(),
                set=self.plan.switches.assignments,
            )
            self._add(config.name, partial(build_driver, config), driver_identity(driver.name, node.name))

    def _add(self, name: str, build: Build, main: Identity, others: Sequence[Identity] = ()) -> None:
        clock = SimClock(self._loop, self._wall_base_s)
        self._processes[name] = _Process(name, build, main, others, clock, self.plan.switches_of(name))

    def components(self) -> Sequence[str]:
        """Return the names of all components, sorted."""
        return sorted(self._processes)

    def nodes(self) -> Sequence[str]:
        """Return the names of all nodes, in the order of their hosts."""
        return list(self._host_of)

    def instance(self, component: str) -> Component | None:
        """Return the component's living incarnation for inspection; None when it is down."""
        return self._process(component).component

    def _process(self, component: str) -> _Process:
        kind, _, name = component.partition("/")
        if kind == "kubelet" and name in self._host_of:
            component = f"kubelet/{self._host_of[name]}"
        if component not in self._processes:
            raise ValueError(f"no component {component!r}; there are: {', '.join(self.components())}")
        return self._processes[component]

    def _host(self, node: str) -> _Process:
        if node not in self._host_of:
            raise ValueError(f"no node {node!r}; there are: {', '.join(self._host_of)}")
        return self._processes[f"kubelet/{self._host_of[node]}"]

    @property
    def progress(self) -> None:
        """None: the observer's link has no latency."""
        return

    def api(self, identity: Identity) -> Api:
        """Return the API server over a link without faults or latency."""
        return SimApi(SimTransport(self._network, self._observer_life), identity)

    async def start(self) -> None:
        """Start the API server, then everything else; return when all components and nodes are ready. Raises:
        MeshError.
        """
        for process in self._processes.values():
            process.keeper = asyncio.create_task(self._keep(process))
        try:
            await self._until_ready(tuple(self._processes.values()))
        except BaseException:
            await self.stop()
            raise

    async def _until_ready(self, processes: Sequence[_Process]) -> None:
        """Return when all of them are. Raises: MeshError when one cannot start or is not ready in time."""
        limit = self.clock.now() + READY_LIMIT_S
        while waiting := [p for p in processes if p.component is None or not p.component.is_ready]:
            for process in waiting:
                if process.keeper is not None and process.keeper.done() and (error := process.keeper.exception()):
                    if not isinstance(error, StartError):
                        raise error
                    switches = process.switches.assignments
                    why = f" (with {', '.join(switches)})" if switches else ""
                    raise MeshError(f"{process.name} cannot start: {error}{why}")
            if self.clock.now() > limit:
                names = ", ".join(process.name for process in waiting)
                raise MeshError(f"not ready after {READY_LIMIT_S:g} s: {names}; {self.failures[-3:]}")
            await asyncio.sleep(READY_POLL_S)

    async def restart(self, component: str, switches: Sequence[str] = ()) -> None:
        """Shut an incarnation down in an orderly way; return when the next one, with these switches, is ready."""
        process = self._process(component)
        process.switches = process.switches.replace(Switches.parse(switches).chosen_values)
        what = {"set": list(switches)} if switches else {}
        self._chaos.write("fault.inject", data={"target": process.name, "what": "restart", **what})
        if process.keeper is not None:
            process.keeper.cancel()
        self._loop.thaw(process.name)
        if process.life is not None and process.task is not None and not process.life.is_over:
            if process.name == "apiserver":
                self._network.close()
            process.task.cancel()
            await asyncio.wait((process.task,), timeout=STOP_MAX_S)
            process.life.end()
        process.component, process.down_until = None, 0.0
        process.keeper = asyncio.create_task(self._keep(process))
        try:
            await self._until_ready((process,))
        except MeshError as error:
            raise NotPossible(str(error)) from None

    async def _keep(self, process: _Process) -> None:
        backoff = RESTART_BACKOFF_MIN_S
        while True:
            await asyncio.sleep(self._random.uniform(START_MIN_S, START_MAX_S))
            if self.clock.now() < process.down_until:
                # Killed while it was starting: the next one starts from the beginning.
                await asyncio.sleep(process.down_until - self.clock.now())
                continue
            started = self.clock.now()
            self._launch(process)
            assert process.task is not None
            await asyncio.wait((process.task,))
            self._bury(process)
            if self.clock.now() - started > 60.0:
                backoff = RESTART_BACKOFF_MIN_S
            await asyncio.sleep(max(backoff, process.down_until - self.clock.now()))
            backoff = min(backoff * 2, RESTART_BACKOFF_MAX_S)

    def _launch(self, process: _Process) -> None:
        process.incarnations += 1
        life = process.life = Lifetime(process.name, process.incarnations)
        seed = f"{self.plan.draws}/{process.name}/{process.incarnations}"
        makes_uids = process.name == "apiserver"
        chance = random.Random(f"{self.plan.identifiers}/apiserver/{process.incarnations}" if makes_uids else seed)
        incarnation = f"{chance.getrandbits(64):016x}"
        transport = SimTransport(self._network, life, process.gates)
        transport.main = process.main
        transport.identities = {identity.user: identity for identity in process.others}
        living = LivingLines(life, self.events.take)
        events: EventLog = MemoryEventLog(process.name, process.clock, incarnation, self.events, living.take)
        is_aside = self._on_move is not None and process.switches.choice("telemetry.queue_moves") == "off"
        if self._on_move is not None and is_aside and component_of(process.name) == "scheduler":
            moves = LivingLines(life, self._on_move)
            events = Aside(events, process.name, incarnation, process.clock, "sched.moved", moves.take)
        tracer = Tracer(
            component_of(process.name),
            clock=process.clock,
            random=random.Random(f"trace/{seed}"),
            instance=f"{process.name}-{incarnation}",
            sinks=(self.spans,) if self.plan.traced else (),
            call_random=random.Random(f"trace/{seed}/calls"),
            resource=self._resource,
        )
        seams = Seams(
            component=process.name,
            clock=process.clock,
            random=chance,
            disk=SimDisk(process.disk_image, random.Random(f"disk/{seed}"), life),
            transport=TracedTransport(transport, tracer) if tracer.records else transport,
            events=events,
            tracer=tracer,
            switches=process.switches,
            sockets=SimSockets(self._sockets, life),
        )
        events.write("proc.start", data={"switches": list(process.switches.assignments)})
        context = contextvars.copy_context()
        context.run(OWNER.set, process.name)
        process.component = context.run(process.build, seams)
        if process.name == "apiserver" and not life.is_over:
            api_for = partial(process.component.server.api_for, kind="server")  # type: ignore[attr-defined]
            self._network.open(api_for, life, context)
        process.task = asyncio.create_task(process.component.run(), context=context)
        life.adopt(process.task)

    def _bury(self, process: _Process) -> None:
        """Sever what an incarnation that ended by itself may have left."""
        assert process.life is not None
        assert process.task is not None
        if process.name == "apiserver":
            self._network.close()
        if not process.life.is_over and not process.task.cancelled():
            error = process.task.exception()
            if not _is_deposed(error):
                self.failures.append(f"{self.clock.now():.3f} s: {process.name} ended: {error!r}")
            process.exit_codes.append(_exit_code(error))
        process.life.end()
        process.component = None

    def exit_codes(self, component: str) -> Sequence[int]:
        """Return the exit codes that the lives that ended by themselves would have had, oldest first."""
        return self._process(component).exit_codes

    async def command_plugin(self, node: str, resource: str, act: str, devices: tuple[str, ...]) -> None:
        """Make an emulated device plugin act. Raises: ValueError."""
        sockets = SimSockets(self._sockets, self._observer_life)
        await command_plugin(sockets, "nodes", node, resource, act, devices)

    async def command_driver(self, node: str, driver: str, act: str, words: tuple[str, ...]) -> None:
        """Make an emulated DRA driver act. Raises: ValueError."""
        await command_driver(SimSockets(self._sockets, self._observer_life), "nodes", node, driver, act, words)

    async def kill(self, component: str, down_s: float | None, site: Site | None = None) -> None:
        """Kill an incarnation between two instants, or at its site; its disk keeps all synced data."""
        if site is not None:
            await self.strike_at(component, site, lambda: self.sever(component, down_s))
        else:
            self.sever(component, down_s)
        await asyncio.sleep(0)

    def sever(self, component: str, down_s: float | None = None) -> None:
        """Kill an incarnation at this very instant, in the middle of whatever the component does."""
        process = self._process(component)
        process.down_until = max(process.down_until, self.clock.now() + (down_s or 0.0))
        if process.life is None or process.life.is_over:
            return
        self._chaos.write("fault.inject", data={"target": process.name, "what": "kill"})
        if process.name == "apiserver":
            self._network.close()
        process.life.end()
        self._loop.thaw(process.name)  # also what is stopped dies at once

    def on_line(self, handler: Callable[[Line], None]) -> None:
        """Call `handler` with every line of the event log, before its effect is visible to others."""
        self._handlers.append(handler)

    def _on_line(self, line: Line) -> None:
        for handler in self._handlers:
            handler(line)

    async def pause(self, component: str, duration_s: float, site: Site | None = None) -> None:
        """Stop the component in the middle of whatever it does, and resume it later as if no time had passed."""
        name = self._process(component).name
        if site is not None:
            await self.strike_at(name, site, lambda: self._freeze(name))
        else:
            self._freeze(name)
        try:
            await asyncio.sleep(duration_s)
        finally:
            self._loop.thaw(name)
            self._chaos.write("fault.heal", data={"target": name, "what": "pause"})

    async def strike_at(self, component: str, site: Site, strike: Callable[[], None]) -> None:
        """Return once the component has reached the site, at which `strike` was called in that very instant."""
        process = self._process(component)
        reached = self._loop.create_future()
        left = site.count

        def on_site(name: str) -> None:
            nonlocal left
            left -= name == site.name
            if left == 0 and not reached.done():
                reached.set_result(None)
                strike()

        def on_line(line: Line) -> None:
            if line.comp == process.name:
                on_site(line.ev)

        self._handlers.append(on_line)
        process.sites.append(on_site)
        process.listen()
        try:
            await reached
        finally:
            self._handlers.remove(on_line)
            process.sites.remove(on_site)
            process.listen()

    def _freeze(self, name: str) -> None:
        self._chaos.write("fault.inject", data={"target": name, "what": "pause"})
        self._loop.freeze(name)

    async def corrupt(self, component: str, how: str, what: str) -> None:
        """Kill the host, and corrupt its checkpoint or its runtime's record before it is back."""
        process = self._process(component)
        files = process.disk_image.files
        damaged = corrupt_files({name: bytes(data) for name, data in files.items()}, how, what)
        self.sever(component)
        for name, data in damaged.items():
            if data is None:
                del files[name]
            else:
                files[name] = DiskFile(data)
        self._chaos.write("fault.fired", data={"target": process.name, "what": "corrupt", "how": how, "file": what})
        await asyncio.sleep(0)

    def link(self, component: str, faults: LinkFaults = HEALTHY) -> None:
        """Set the faults of a component's link, or of one node's; without any, heal it."""
        faults.check()
        faults.check_component(component)
        kind, _, node = component.partition("/")
        if kind == "node":
            name = component
            self._host(node).gates.of(node).set(faults)
        else:
            name = self._process(component).name
            self._network.profile(name).faults = faults
        self._report(f"link/{name}", faults.data())

    def _report(self, target: str, what: Mapping[str, object]) -> None:
        self._chaos.write("fault.inject" if what else "fault.heal", data={"target": target, **what})

    def set_clock(self, component: str, offset_s: float) -> None:
        """Offset the component's wall clock; its virtual seconds are not affected."""
        process = self._process(component)
        process.clock.wall_skew_s = offset_s
        self._report(f"clock/{process.name}", {"offset_s": offset_s} if offset_s else {})

    def set_disk(self, component: str, error: str, slow_s: float) -> None:
        """Make every sync fail with that error, or take `slow_s` longer."""
        process = self._process(component)
        process.disk_image.broken = disk_error(error)
        process.disk_image.slow_s = slow_s
        what = {"error": error} if error else {}
        self._report(f"disk/{process.name}", what | ({"slow_s": slow_s} if slow_s else {}))

    async def reboot(self, component: str, down_s: float) -> None:
        """Kill the host, and start a new boot of its machine before it is back."""
        process = self._process(component)
        self.sever(component, down_s)
        boot_id = f"{self._random.getrandbits(128):032x}"
        process.disk_image.files[BOOT_FILE] = DiskFile(boot_id.encode())
        self._chaos.write("fault.fired", data={"target": process.name, "what": "boot", "boot_id": boot_id})
        await asyncio.sleep(0)

    def has_machine(self, node: str) -> bool:
        """Return whether a kubelet hosts the node."""
        return node in self._host_of

    async def put_file(self, node: str, name: str, data: bytes | None) -> None:
        """Put a file on the disk of the node's process; it survives kills. Raises: ValueError."""
        files = self._host(node).disk_image.files
        if data is None:
            files.pop(path_of(node, name), None)
        else:
            files[path_of(node, name)] = DiskFile(data)

    async def stop(self) -> None:
        """End every incarnation; nothing restarts."""
        for process in self._processes.values():
            if process.keeper is not None:
                process.keeper.cancel()
            if process.life is not None:
                process.life.end()
            self._loop.thaw(process.name)
        self._network.close()
        await asyncio.sleep(0)


def _exit_code(error: BaseException | None) -> int:
    """Return what a process that ended so would exit with (guarantees P14)."""
    if isinstance(error, BaseExceptionGroup):
        known_errors = error.subgroup((StartError, LeadershipLost))
        return _exit_code(known_errors.exceptions[0] if known_errors is not None else error.exceptions[0])
    if isinstance(error, StartError):
        return error.exit_code
    if isinstance(error, LeadershipLost):
        return EXIT_DEPOSED
    return EXIT_OK if error is None else EXIT_BUG


def _is_deposed(error: BaseException | None) -> bool:
    """Whether a process ended because another leads: that is how it should end."""
    return isinstance(error, BaseExceptionGroup) and error.split(LeadershipLost)[1] is None


def _as_files(files: Mapping[str, bytes]) -> dict[str, DiskFile]:
    return {name: DiskFile(data) for name, data in files.items()}
