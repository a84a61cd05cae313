"""The parts that the nodes of one process share: one timer heap, one journal, one group of tasks."""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import structlog

from kubelet.agent.journal import Journal
from kubelet.agent.manager_state import FILE as MANAGER_STATE
from kubelet.agent.manager_state import is_readable, restore_state
from kubelet.agent.node_files import NodeFiles
from kubelet.agent.power import Power, Tenant
from kubelet.config import KubeletConfig
from kubelet.effects import NODE_KEY
from kubelet.managers.allocation import Allocation
from kubelet.node.definition import NodeDefinition, node_switches
from kubelet.pod.context import Policy, WallTimes
from kubelet.pod.restarts import crashloop_bounds
from kubelet.runtime.boots import after_boot, look
from kubelet.runtime.latency import LatencyModel
from kubelet.runtime.records import PodRecord
from kubelet.switches import KubeletSwitches
from kubelet.timers import Timers
from kubelet.view import KubeletPod, WorkerKey
from services.api.meta import Document
from services.api.seams import Seams
from services.api.unbind import UnbindSwitches
from services.kwok.documents import STAGE, Configuration
from services.kwok.stages.stage import Stage
from services.reconcile.controller import Change
from services.runtime.config import EXIT_CONFIG, EXIT_USAGE, StartError

if TYPE_CHECKING:
    from kubelet.agent.kwok_watch import KwokWatch

TICK_S = 5.0
REGISTERING_MAX = 128
RESOURCE_METRICS = "/metrics/resource"
RESOURCE_METRICS_PATH = "metrics.k8s.io/resource-metrics-path"
"""The Node annotation that gives metrics-server (0.7 and later) another path than the kubelet's own."""

log = structlog.get_logger()


def _kwok_watch(host: "Host") -> "KwokWatch":
    from kubelet.agent.kwok_watch import KwokWatch  # expressions are large, and few hosts have such objects

    return KwokWatch(host)


class Host:
    """The parts that all nodes of one process share. `agents` are set once, before `run`."""

    def __init__(self, config: KubeletConfig, seams: Seams, definitions: tuple[NodeDefinition, ...]) -> None:
        self.config, self.seams = config, seams
        self.clock, self.random = seams.clock, seams.random
        self.switches = seams.switches.of(KubeletSwitches)
        self.times = WallTimes(self.clock.wall() - self.clock.now())
        self._start_fence = seams.switches.of(UnbindSwitches).has_start_fence
        seed = config.seed if config.seed is not None else self.random.getrandbits(32)
        self.stages = config.read_stages()
        self.kwok = config.read_kwok() if config.stages else Configuration()
        """What documents of KWOK's other kinds say."""
        self.kwok_kinds = config.kwok_kinds()
        """Kinds of which there may be objects."""
        self.kwok_watch = _kwok_watch(self) if self.kwok_kinds else None
        self.on_kwok: Callable[[], None] = lambda: None
        """Called when `kwok` has changed."""
        self.on_pod: Callable[[str, Change[KubeletPod], Document | None], None] | None = None
        """Takes changes of pods with the node and the document, where documents of KWOK's need them."""
        self.latency: LatencyModel = config.latency_model(seed)
        self.timers: Timers[tuple[Tenant, str, WorkerKey]] = Timers()
        self.journal = Journal(seams.disk, frozenset(d.name for d in definitions))
        self.files = NodeFiles(seams.disk, config.static_pods, definitions)
        self._definitions = definitions
        self.agents: list[Tenant] = []
        self.registering = asyncio.Semaphore(REGISTERING_MAX)
        """Held by a node while it registers. More at once wait in the API server until their attempts time out."""
        self.make: Callable[[int], Tenant] = lambda place: self.agents[place]
        """Makes the node of that place anew."""
        self.power = Power(
            self.agents,
            lambda place: self.make(place),
            journal=self.journal,
            disk=seams.disk,
            clock=seams.clock,
            on_new=lambda node: self.files.forget(node.name),
        )
        self._is_over = False
        self._handle: asyncio.TimerHandle | None = None
        self._handle_at_s = float("inf")
        self._last_tick_s = self.clock.now()
        self._touched: dict[Tenant, None] = {}

    def switches_of(self, definition: NodeDefinition) -> KubeletSwitches:
        """Return the switches of one node's kubelet, with its own release and gates."""
        own = node_switches(definition, self.seams.switches)
        return self.switches if own is self.seams.switches else own.of(KubeletSwitches)

    def policy_of(self, definition: NodeDefinition, switches: KubeletSwitches) -> Policy:
        """Return the policy that the pods of one node share. Raises: StartError for a maximum that the gate forbids."""
        node_max_s = definition.max_container_restart_period
        if node_max_s and not switches.has_backoff_max:
            text = "maxContainerRestartPeriod must not be set while KubeletCrashLoopBackOffMax is off"
            raise StartError(f"node {definition.name}: {text}", EXIT_USAGE)
        initial_s, max_s = crashloop_bounds(
            self.config.crashloop_initial_s,
            self.config.crashloop_max_s,
            is_reduced=switches.has_reduced_decay,
            node_max_s=node_max_s,
        )
        return Policy(initial_s, max_s, self._start_fence, self.config.completion_s, switches.resizes_init_containers)

    def annotations_of(self, node: str) -> dict[str, str]:
        """Return the annotations that KWOK documents require on a Node: where metrics-server finds its metrics."""
        paths = (rule.spec.path for rule in self.kwok["Metric"].all)
        path = next((each for each in paths if "{nodeName}" in each and each.endswith(RESOURCE_METRICS)), "")
        return {RESOURCE_METRICS_PATH: path.replace("{nodeName}", node)} if path else {}

    @property
    def knows_stages(self) -> bool:
        """Whether there are stages, or there may be some later."""
        return bool(self.stages) or STAGE in self.kwok_kinds

    @property
    def knows_kwok(self) -> bool:
        """Whether there are documents of KWOK's other kinds, or there may be some later."""
        return bool(self.kwok) or any(kind != STAGE for kind in self.kwok_kinds)

    def stages_changed(self, stages: tuple[Stage, ...]) -> None:
        """Replace the stages that drive the objects."""
        self.stages = stages
        for agent in self.agents:
            agent.stages_changed()
            self.touch(agent)
        self._drain_touched()

    def kwok_changed(self, configuration: Configuration) -> None:
        """Replace the documents of KWOK's other kinds."""
        self.kwok = configuration
        self.on_kwok()

    async def run(self) -> None:
        """Host the nodes until cancelled."""
        await self._recover()
        self.files.look(self.agents, self.power)
        self.journal.on_error = self._disk_changed
        self.journal.on_batch = self._drain_touched
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.journal.run())
                if self.kwok_watch is not None:
                    group.create_task(self.kwok_watch.run())
                group.create_task(self.files.run(self.agents, self.power))
                self.power.begin(group)
                self._last_tick_s = self.clock.now()
                self.tick()
                await asyncio.Event().wait()
        finally:
            # The timer is the one thing of ours that no task owns.
            self._is_over = True
            self.power.end()
            if self._handle is not None:
                self._handle.cancel()

    async def _recover(self) -> None:
        """Hand every node what its runtime holds, and in which boot of the machine that is."""
        by_name = {agent.name: agent for agent in self.agents}
        records = self.journal.load()
        for name, pods in self.journal.silent.items():
            self.seams.events.write("kubelet.checkpoint_lost", node=name, data={"pods": pods})
        state = self._restored_managers(records.values())
        now = self.clock.now()
        boot = look(self.seams.disk, self.random, list(records.values()), now)
        if boot.is_new:
            # What ended with the machine is on disk before the boot counts as seen: a kill in between repeats it.
            records = after_boot(records, now)
            await self.journal.replace(records)
        await self.journal.keep({name: boot.id.encode() for name in boot.missing} | state)
        self.power.machine = boot
        for agent in self.agents:
            agent.begins(boot)
        for (node, key), record in records.items():
            by_name[node].recover(record, key)

    def _restored_managers(self, records: Iterable[PodRecord]) -> dict[str, bytes]:
        """Return the file about static policies, if it has to change. Raises: StartError when they may not go on."""
        held: dict[str, list[Allocation]] = {}
        for record in records:
            if not record.is_finished:
                held.setdefault(record.node, []).append(record.allocation)
        old = self.seams.disk.read(MANAGER_STATE)
        if not is_readable(old):
            log.warning("record.torn", file=MANAGER_STATE, reason="it cannot be read and is left out")
        try:
            state = restore_state(old, self._definitions, held, lost=self.journal.silent)
        except ValueError as error:
            raise StartError(str(error), EXIT_CONFIG) from None
        return {} if state == (old or b"") else {MANAGER_STATE: state}

    def _disk_changed(self) -> None:
        for agent in self.agents:
            agent.disk_changed(has_error=self.journal.has_error)

    def set_timer(self, at_s: float, agent: Tenant, what: str, key: WorkerKey = NODE_KEY) -> None:
        """Call `agent.fire(what, key)` at that time."""
        if self.timers.set(at_s, (agent, what, key)):
            self._arm()

    def _arm(self) -> None:
        at_s = self.timers.next_at_s
        if self._is_over or at_s is None or (self._handle is not None and self._handle_at_s <= at_s):
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle_at_s = at_s
        delay_s = max(0.0, at_s - self.clock.now())
        self._handle = asyncio.get_running_loop().call_later(delay_s, self._fire)

    def _fire(self) -> None:
        self._handle, self._handle_at_s = None, float("inf")
        now = self.clock.now()
        self.notice(now)
        self._last_tick_s = now
        for agent, what, key in self.timers.due(now):
            agent.fire(what, key, now)
            self._touched[agent] = None
        self._drain_touched()
        self._arm()

    def notice(self, now: float) -> None:
        """Check whether the process was frozen.

        After that, other clients' changes must be read before anything is done (N6).
        """
        if now - self._last_tick_s > self.switches.grace_s:
            self._last_tick_s = now
            for agent in self.agents:
                agent.was_away()

    def touch(self, agent: Tenant) -> None:
        """Schedule the agent's effects to be performed at the end of the batch."""
        self._touched[agent] = None

    def _drain_touched(self) -> None:
        touched, self._touched = self._touched, {}
        for agent in touched:
            agent.drain()

    def tick(self) -> None:
        """Notice wall-clock jumps and keep the host's tick timer running."""
        self.times.offset_s = self.clock.wall() - self.clock.now()
        if self.agents:
            self.set_timer(self.clock.now() + TICK_S, self.agents[0], "tick")
