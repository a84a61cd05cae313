"""The loops of one node: register, follow its pods, feed its machine, perform its effects, send heartbeats.

Tasks exist for watches and for calls in flight; nothing else waits in a task of its own.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec
import structlog

from kubelet.admission.predicates import NodeFacts
from kubelet.agent.device_sockets import DeviceSockets
from kubelet.agent.driver_sockets import DriverSockets
from kubelet.agent.heartbeats import SPREAD_ABOVE_NODES, Heartbeats
from kubelet.agent.host import Host
from kubelet.agent.node import NodeShell
from kubelet.agent.pod_calls import PodCalls
from kubelet.agent.reference_reads import ReferenceReads
from kubelet.agent.slice_stages import STAGE_SLICE
from kubelet.agent.stage_player import STAGE_TIMERS, StagePlayer
from kubelet.agent.topology_writer import TopologyReporting, is_wanted
from kubelet.effects import (
    CallDriver,
    CallUnbind,
    CreateMirror,
    DeleteMirror,
    DeletePod,
    EndSpan,
    Log,
    PlayStage,
    PowerOff,
    ReadAttached,
    ReadClaims,
    ReadNode,
    ReadPod,
    ReadReferences,
    ReadVolumes,
    RecordEvent,
    RecordNodeEvent,
    ReportNode,
    Save,
    SetTimer,
    SpanStage,
    StartSpan,
    WipeSlices,
    WriteStatuses,
)
from kubelet.kubelet import Kubelet
from kubelet.managers.device_calls import CallPlugin, DevicesChanged
from kubelet.node.definition import NodeDefinition, resize_node
from kubelet.node.health import parse_node_faults
from kubelet.node.status import STATUS_PERIOD_S, annotation_change, node_document
from kubelet.pod.context import NodeRuntime
from kubelet.pod.logs import Run, run_of
from kubelet.pod.pod import Pod
from kubelet.pod.status import waiting_reason
from kubelet.references.references import containers_of
from kubelet.runtime.behavior import command_output, literal_environment
from kubelet.runtime.boots import Boot, boot_id_of
from kubelet.runtime.images import NodeImages
from kubelet.runtime.pleg import Pleg
from kubelet.runtime.projections import environment
from kubelet.runtime.records import PodRecord
from kubelet.runtime.script import StartFaults
from kubelet.runtime.volumes import NodeVolumes
from kubelet.view import KubeletPod, WorkerKey, worker_key
from services.api.errors import UNREADABLE, ApiError, Conflict, UnknownOutcome
from services.api.kinds.node import Node
from services.api.meta import Document, Key
from services.client.informer import Informer
from services.reconcile.controller import Change
from services.runtime.config import EXIT_LOCKED, StartError

REGISTER_RETRY_MIN_S, REGISTER_RETRY_MAX_S = 0.1, 7.0
log = structlog.get_logger()

_POD, _NODE = msgspec.json.Decoder(KubeletPod), msgspec.json.Decoder(Node)


class Agent(NodeShell):
    """One node: its identity, its watches, its machine."""

    def __init__(self, host: Host, definition: NodeDefinition, index: int) -> None:
        self._defined = definition
        definition = host.files.with_capacity(definition)
        super().__init__(host, definition)
        config = host.config
        number = (config.first + index) if config.nodes else _crc(definition.name)
        draws = host.latency.for_pod(definition.name, "relist")
        runtime = NodeRuntime(
            definition.name,
            config.address,
            host.latency,
            host.policy_of(definition, self.switches),
            host.times,
            Pleg(self.switches.pleg_mode, draws.of("relist"), host.clock.now(), draws.share("phase", 0)),
            StartFaults(parse_node_faults(definition.start_faults).all_starts),
            NodeImages(definition.present_images(), pullers=definition.pullers),
            NodeVolumes(definition.attachable_volumes, is_controlled=self.switches.controller_attaches),
        )
        self._pod_network = f"10.{64 + (number >> 8) % 128}.{number & 255}"
        self.kubelet = kubelet = Kubelet(definition, runtime, switches=self.switches, pod_network=self._pod_network)
        kubelet.managers.stopwatch = host.clock.now
        self.boot = Boot("", False, ())
        self.is_paused = self.must_read = False
        self.pods: Informer[KubeletPod] | None = None
        self._postponed: list[Callable[[float], None]] = []
        self._unrecorded: list[RecordEvent] = []
        self._annotated: dict[str, str] = {}
        self.calls = PodCalls(
            self, kubelet.statuses, kubelet.admission, kubelet.static_pods, kubelet.claims, kubelet.volumes
        )
        self.reads = ReferenceReads(self, kubelet.references)
        self.heartbeats = Heartbeats(self)
        self.stages = StagePlayer(self, kubelet.out) if host.knows_stages else None
        self.topology = TopologyReporting(self, kubelet.managers, kubelet.ledger) if is_wanted(self) else None
        plugins = kubelet.plugins
        self.devices = DeviceSockets(self, plugins, kubelet.admission) if plugins is not None else None
        takes_drivers = definition.takes_drivers
        self.drivers = DriverSockets(self, kubelet.claims, kubelet.driver_health) if takes_drivers else None
        self._performs = self._performers()

    # --- life ---

    async def live(self) -> None:
        """Register, open a session, then follow the node's pods until cancelled."""
        spread_s = self.host.config.registration_spread_s if len(self.host.agents) > SPREAD_ABOVE_NODES else 0.0
        if spread_s:
            await asyncio.sleep(self.host.random.uniform(0.0, spread_s))
        if self.devices is not None:
            self.devices.restore()
            self.drain()
            await self.devices.serve()
        if self.host.kwok_watch is not None:
            await self.host.kwok_watch.wait()
        delay_s = REGISTER_RETRY_MIN_S
        while True:
            try:
                async with self.host.registering:
                    await self._register()
                break
            except (ApiError, UnknownOutcome) as error:
                log.warning("node.registration_failed", node=self.name, reason=str(error), backoff_s=delay_s)
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, REGISTER_RETRY_MAX_S)
        now = self.now()
        if self.boot.is_new:
            self.record("Rebooted", f"Node {self.name} has been rebooted, boot id: {self.report.boot_id}", "Warning")
        if self.topology is not None:
            self.topology.tick(now)
        if self.drivers is not None:
            self.spawn(self._follow_drivers(self.drivers))
        if self.host.config.node_events == "all":
            self.spawn(self._follow_node())
        self.drain()
        assert self.api is not None
        pods = Informer(
            self.api,
            KubeletPod,
            clock=self.host.clock,
            random=self.host.random,
            field_selector=f"spec.nodeName={self.name}",
            keep_documents=self.stages is not None or self.host.knows_kwok,
            resource="pods",
            events=self.host.seams.events,
            spread_s=spread_s,
        )
        if self.stages is not None:
            self.kubelet.staged_pods.manager = self.stages.follow(pods, self.kubelet.addresses.new_ip)
        pods.on_change(self._pod_changed)
        if (on_pod := self.host.on_pod) is not None:
            pods.on_change(lambda change: on_pod(self.name, change, pods.lister.document(change.object.metadata.key)))
        pods.on_progress(self._pods_progressed)
        self.pods = pods
        await pods.run()

    async def _follow_node(self) -> None:
        """Report what the kubelet enforces, and from then on when the Node is cordoned.

        Source: upstream `pkg/kubelet/cm/node_container_manager_linux.go` (`enforceNodeAllocatableCgroups`).
        """
        self.report.news.append(("NodeAllocatableEnforced", "Updated Node Allocatable limit across pods"))
        assert self.api is not None
        nodes = Informer(
            self.api,
            Node,
            clock=self.host.clock,
            random=self.host.random,
            keep_documents=False,
            field_selector=f"metadata.name={self.name}",
            resource="nodes",
            events=self.host.seams.events,
        )
        nodes.on_change(self._node_changed)
        await nodes.run()

    async def _follow_drivers(self, drivers: DriverSockets) -> None:
        """Let drivers register, once what they published before is withdrawn: none of them is known yet."""
        await self.calls.wipe_slices()
        await drivers.watch()

    async def _register(self) -> None:
        """Leave a Node that is ours, with our session acknowledged (N5)."""
        host = self.host
        await self.connect()
        wanted = node_document(
            self.definition, is_controlled=self.switches.controller_attaches, pod_network=self._pod_network
        )
        annotations = self._annotated = host.annotations_of(self.name)
        if annotations:
            wanted["metadata"]["annotations"] = {**wanted["metadata"].get("annotations", {}), **annotations}
        is_new = True
        try:
            stored = await self.client.create("nodes", wanted)
        except Conflict:
            is_new = False
            stored = await self.client.get("nodes", Key("", self.name))
            labels = stored["metadata"].get("labels") or {}
            missing = {k: v for k, v in wanted["metadata"]["labels"].items() if labels.get(k) != v}
            change: Document = {"labels": missing} if missing else {}
            if (now_said := annotation_change(stored, is_controlled=self.switches.controller_attaches)) is not None:
                change["annotations"] = now_said
            held = stored["metadata"].get("annotations") or {}
            if more := {name: text for name, text in annotations.items() if held.get(name) != text}:
                change["annotations"] = {**change.get("annotations", {}), **more}
            if change:
                stored = await self.client.patch("nodes", Key("", self.name), {"metadata": change})
        for condition in (stored.get("status") or {}).get("conditions") or ():
            self.report.observe(condition["type"], condition["status"], condition.get("lastTransitionTime") or "")
        self.node_uid = stored["metadata"].get("uid", "")
        self.heartbeats.begin(host.clock.now(), is_new=is_new)  # whether or not a status can be written (kubelet 2.2)
        host.seams.events.write("kubelet.session", node=self.name, data={"session": self.session, "acked": False})
        wall_s = host.clock.wall()
        status = self.report.status(wall_s)
        written = dict(status)  # stages take members out of what is sent
        if self.stages is not None:
            self.stages.registering(stored, status)
        stored = await self.client.patch(
            "nodes", Key("", self.name), {"status": status}, subresource="status", patch_type="strategic"
        )
        self.node_writes += 1
        host.seams.events.write("kubelet.session", node=self.name, data={"session": self.session, "acked": True})
        self.take_node(msgspec.convert(stored, Node))
        self.is_registered = True
        if self.report.status(wall_s) != written:
            self.heartbeats.report_soon()  # a device plugin came, for example, while the first status was under way
        # Static pods may have run before the API server was reached.
        unrecorded, self._unrecorded = self._unrecorded, []
        for event in unrecorded:
            self._record(event)
        self.drain()
        if self.stages is not None:
            self.stages.seen_node(stored)
            self.stages.on_registered()

    def files_changed(self, files: Mapping[str, bytes]) -> None:
        """Take the manifests of static pods as they are now."""
        clock = self.host.clock
        for file, why in self.kubelet.files_changed(files, clock.wall(), clock.now()).items():
            log.warning("static_pod.unreadable", node=self.name, file=file, reason=why)
        self.drain()

    def stages_changed(self) -> None:
        """Apply the host's present stages."""
        if self.stages is not None:
            self.stages.stages_changed()
            self.kubelet.staged_pods.stages_changed(self.now())

    def annotations_changed(self) -> None:
        """Write the new path of the node's metrics, when it changed."""
        if self.is_registered and self.host.annotations_of(self.name) != self._annotated:
            self.spawn(self._annotate())

    async def _annotate(self) -> None:
        wanted = self.host.annotations_of(self.name)
        change = {**dict.fromkeys(self._annotated), **wanted}
        try:
            await self.client.patch("nodes", Key("", self.name), {"metadata": {"annotations": change}})
        except (ApiError, UnknownOutcome) as error:
            log.warning("node.annotation_failed", node=self.name, reason=str(error))
        else:
            self._annotated = wanted

    def faults_changed(self, text: str) -> None:
        """Replace the node's faults. `text`: faults in the syntax of `kubelet/node/health.py`."""
        try:
            faults = parse_node_faults(text or self.definition.start_faults)
        except ValueError as error:
            log.warning("node.faults_unreadable", node=self.name, reason=str(error))
            return
        self.kubelet.node.faults_changed(faults, self.now())
        self.drain()

    def capacity_changed(self, text: str) -> None:
        """Replace the machine's capacity; running pods stay, and no pod is admitted until it fits."""
        try:
            definition = resize_node(self._defined, text)
        except ValueError as error:
            log.warning("node.capacity_unreadable", node=self.name, reason=str(error))
            return
        if definition == self.definition:
            return
        self.kubelet.capacity_changed(self.definition, definition, self.now())
        self.definition = self.report.definition = definition
        self.heartbeats.report_soon()
        self.drain()

    def shut_down(self) -> None:
        """Shut the node down gracefully: end its pods, then request the power-off."""
        self.kubelet.node.shut_down(self.now())
        self.drain()

    def node_gone(self) -> None:
        """Register again under the same session, because the Node was deleted."""
        if self.is_registered:
            self.is_registered = False
            self.spawn(self._register_again())

    @property
    def is_ready(self) -> bool:
        """Whether the node is registered and knows its pods, or has no power."""
        return self.is_off or (self.is_registered and self.pods is not None and self.pods.has_synced)

    def begins(self, boot: Boot) -> None:
        """Set the machine's boot; after a new boot nothing that ran before runs any more."""
        self.boot = boot
        self.kubelet.is_booted = boot.is_new
        self.report.boot_id = boot_id_of(self.name, boot.id)
        if boot.is_new:
            self.host.seams.events.write("node.boot", node=self.name, data={"boot_id": self.report.boot_id})

    def recover(self, record: PodRecord, key: WorkerKey) -> None:
        """Take a pod's record that the runtime still holds from before this process began."""
        self.kubelet.recovery.records[key] = record

    def disk_changed(self, *, has_error: bool) -> None:
        """Report that the disk began to fail, or no longer fails."""
        self.report.has_disk_error = has_error
        self.heartbeats.report_soon()

    def report_soon(self) -> None:
        """Write the Node's status."""
        self.heartbeats.report_soon()

    def was_away(self) -> None:
        """Read the pods before acting: the process was frozen for longer than the grace period (N6)."""
        if self.is_off:
            return
        self.must_read = True
        self.heartbeats.report_soon()
        if not self.is_paused and self.pods is not None:
            self.is_paused = True
            self.spawn(self._read_before_acting())

    # --- what the watches bring ---

    def _pod_changed(self, change: Change[KubeletPod]) -> None:
        self.kubelet.pod_changed(change.old, change.new, change.traceparent, self.now())

    def _pods_progressed(self) -> None:
        now = self.now()
        self.host.notice(now)
        if self.is_paused:
            return
        has_all = self.pods is not None and self.pods.has_synced
        self.kubelet.settle(now)
        if has_all and (self.kubelet.recovery.records or not self.kubelet.resizes.has_sources):
            self.kubelet.sources_ready(now)
        self.drain()

    async def _register_again(self) -> None:
        while not self.is_registered:
            try:
                await self._register()
            except (ApiError, UnknownOutcome) as error:
                log.warning("node.registration_failed", node=self.name, reason=str(error))
                await asyncio.sleep(REGISTER_RETRY_MAX_S)
        self.drain()

    def _record_news(self) -> None:
        news, self.report.news = self.report.news, []
        if self.host.config.pod_events != "warnings" and self.writes_status:
            for reason, message in news:
                self.record(reason, message, "Normal")

    def _node_changed(self, change: Change[Node]) -> None:
        if change.new is not None:
            self.report.set_cordoned(change.new.spec.unschedulable)
            self._record_news()
            self._see_resources(change.new)

    def _see_resources(self, node: Node) -> None:
        """Offer what others put into the Node's capacity, from the next time the status is looked at."""
        old = self.report.advertised
        is_news = self.report.resources_seen(node.status)
        if old != self.report.advertised:
            self.kubelet.capacity.advertise(old, self.report.advertised)
        if is_news:
            now = self.now()
            self.set_timer(now + STATUS_PERIOD_S - now % STATUS_PERIOD_S, "advertise")

    def take_node(self, node: Node) -> None:
        """Take the Node as read from the API server."""
        self._record_news()
        self._see_resources(node)
        self.kubelet.admission.node = _facts(node)
        self.kubelet.policy_watch.node_seen(node, self.now())
        if self.kubelet.volumes is not None:
            self.kubelet.volumes.node_written(node, self.now())
        self.node_uid = node.metadata.uid or self.node_uid
        self.kubelet.static_pods.on_registered(self.node_uid)

    async def _read_node(self, read: ReadNode) -> None:
        """Read the own Node. Raises: StartError when another kubelet opened a session of it."""
        node: Node | None = None
        try:
            node = _NODE.decode(await self.client.get_raw("nodes", Key("", self.name)))
        except (ApiError, UnknownOutcome, *UNREADABLE) as error:
            log.warning("node.read_failed", node=self.name, reason=str(error))
        if not read.for_session:
            self.kubelet.admission.node_read(None if node is None else _facts(node), self.now())
            if node is not None:
                self.kubelet.policy_watch.node_seen(node, self.now())
        elif node is None:
            await asyncio.sleep(1.0)
            self.spawn(self._read_node(read))
            return
        else:
            theirs = node.status.node_info.kubelet_session
            if theirs != self.session:
                raise StartError(f"node {self.name}: another kubelet opened session {theirs}", EXIT_LOCKED)
            self.kubelet.admission.session_read(read.key, True, self.now())
        self.drain()

    async def _read_pod(self, read: ReadPod) -> None:
        found = await self.calls.read(read.pod.metadata.key)
        self.kubelet.pod_read(read.key, found, self.now())
        self.drain()

    # --- time ---

    def fire(self, what: str, key: WorkerKey, now: float) -> None:
        """Handle a timer of this node."""
        match what:
            case "tick":
                self.host.tick()
            case _ if self.is_off:
                pass
            case "lease" | "report" | "retry-report" | "advertise":
                self.heartbeats.fire(what, now)
            case "topology":
                assert self.topology is not None
                self.topology.tick(now)
            case _ if what in STAGE_TIMERS or what.startswith(STAGE_SLICE):
                if self.stages is not None:
                    self.stages.fire(what, now)
            case _ if self.is_paused:
                self._postponed.append(partial(self.kubelet.due, what, key))
            case _:
                self.kubelet.due(what, key, now)

    async def _read_before_acting(self) -> None:
        """We were away longer than the grace period: read our pods live before anything else (N6)."""
        assert self.pods is not None
        while True:
            self.must_read = False
            try:
                items, rv = await self.client.list_raw("pods", field_selector=f"spec.nodeName={self.name}")
                if not self.must_read:
                    break
            except (ApiError, UnknownOutcome) as error:
                log.warning("node.read_failed", node=self.name, reason=str(error))
                await asyncio.sleep(1.0)
        listed: dict[Key, None] = {}
        for item in items:
            body = bytes(item)
            listed[_POD.decode(body).metadata.key] = None
            self.pods.offer(body)
        for key in self.pods.lister.keys():  # noqa: SIM118  a store is no dict
            if key not in listed:
                self.pods.lister.remove(key, rv, final_state_unknown=True)
        now = self.now()
        self.is_paused = False
        postponed, self._postponed = self._postponed, []
        for work in postponed:
            work(now)
        self._pods_progressed()

    # --- effects ---

    def drain(self) -> None:
        """Perform the machine's effects, in order."""
        out = self.kubelet.out
        if self.is_off:
            out.effects.clear()
        while out.effects:
            effects, out.effects = out.effects, []
            for effect in effects:
                self._performs[type(effect)](effect)
        if self.topology is not None:
            self.topology.look()

    def _performers(self) -> dict[type, Callable[[Any], None]]:
        """Return what performs each kind of effect. A call of the API server, or of a plugin, is a task of its own."""
        host, traces, calls = self.host, self.traces, self.calls

        def task(make: Callable[[Any], Coroutine[Any, Any, None]]) -> Callable[[Any], None]:
            return lambda effect: self.spawn(make(effect))

        performers: dict[type, Callable[[Any], None]] = {
            SetTimer: lambda e: host.set_timer(e.at_s, self, e.what, e.key),
            Save: lambda e: host.journal.put(e.lines, partial(self._on_saved, e.key, e.seq)),
            Log: self._log,
            RecordEvent: self._record,
            StartSpan: lambda e: traces.begin(e.key, e.pod, e.traceparent),
            SpanStage: lambda e: traces.stage(e.key, e.stage, e.reason),
            EndSpan: lambda e: traces.end(e.key, e.error),
            WriteStatuses: calls.write_statuses,
            CallUnbind: task(calls.unbind),
            DeletePod: task(calls.delete),
            CreateMirror: task(calls.create_mirror),
            DeleteMirror: task(calls.delete_mirror),
            ReadPod: task(self._read_pod),
            ReadNode: task(self._read_node),
            ReadClaims: task(calls.read_claims),
            ReadReferences: task(self.reads.references),
            ReadVolumes: task(calls.read_volumes),
            ReadAttached: task(calls.read_attached),
            WipeSlices: task(calls.wipe_slices),
            DevicesChanged: self._devices_changed,
            ReportNode: self._report_node,
            RecordNodeEvent: lambda e: self.record(e.reason, e.message, e.type),
            PowerOff: lambda e: host.power.cut(self),
        }
        if self.stages is not None:
            performers[PlayStage] = task(self.stages.play)
        if self.devices is not None:
            performers[CallPlugin] = task(self.devices.call)
        if self.drivers is not None:
            performers[CallDriver] = task(self.drivers.call)
        return performers

    def _report_node(self, effect: ReportNode) -> None:
        for field in effect.__struct_fields__:
            if (value := getattr(effect, field)) is not None:
                setattr(self.report, field, value)
        self.heartbeats.report_soon()

    def _devices_changed(self, effect: DevicesChanged) -> None:
        assert self.devices is not None
        assert self.kubelet.plugins is not None
        if (shown := dict(self.kubelet.plugins.capacity())) != self.report.devices:
            self.report.devices = shown
            self.heartbeats.report_soon()
        self.devices.save(effect.registered)

    def _log(self, line: Log) -> None:
        key, pod = line.key, line.pod
        name = pod.metadata.key if pod is not None else (line.name or Key("", ""))
        self.host.seams.events.write(
            line.ev,
            obj=("Pod", name.namespace, name.name, key.uid),
            node=self.name,
            gen=key.generation,
            rv_seen=pod.metadata.rv if pod is not None else None,
            trace_id=self.traces.trace_id(key),
            data=line.data,
        )

    def _on_saved(self, key: WorkerKey, seq: int) -> None:
        now = self.now()
        self.host.notice(now)
        if self.is_off:
            return
        if self.is_paused:
            self._postponed.append(partial(self.kubelet.table.on_saved, key, seq))
            return
        self.kubelet.table.on_saved(key, seq, now)
        self.host.touch(self)

    def _record(self, event: RecordEvent) -> None:
        if event.type == "Normal" and self.host.config.pod_events == "warnings":
            return
        if self.api is None:
            self._unrecorded.append(event)  # static pods live before the API server is reached
            return
        self.events.event(
            kind="Pod",
            api_version="v1",
            key=event.pod.metadata.key,
            uid=event.pod.metadata.uid,
            reason=event.reason,
            message=event.message,
            type=event.type,
            field_path=event.field_path,
            traceparent=self.traces.traceparent(worker_key(event.pod)),
        )

    def machines(self) -> Iterable[Pod]:
        """Return the pods that are here."""
        return self.kubelet.table.pods.values()

    def has_container(self, key: Key, name: str) -> bool:
        """Whether a pod of that name on the node has that container.

        The pod may run in containers or be driven by stages.
        """
        pods = (each.pod for each in self.machines() if each.pod.metadata.key == key)
        pod = next(pods, None) or self.staged_pod(key)
        if pod is None:
            return False
        spec = pod.spec
        return any(c.name == name for c in (*spec.containers, *spec.init_containers, *spec.ephemeral_containers))

    def staged_pod(self, key: Key) -> KubeletPod | None:
        """Return the pod of that name if stages drive it, and None otherwise."""
        stages = self.kubelet.staged_pods.manager
        found = (each.pod for each in stages.pods.values()) if stages is not None else iter(())
        return next((pod for pod in found if pod.metadata.key == key), None)

    def process_ended(self, pod: Pod, container: str, code: int) -> None:
        """End a container because the process that clients were attached to has ended."""
        now = self.now()
        self.kubelet.table.perform(pod, pod.process_ended(container, code, now), now)
        self.drain()

    # --- logs ---

    def _environment(self, pod: Pod, name: str) -> dict[str, str]:
        """Return the variables that the container was last started with, those that name services apart."""
        spec = next(each for each in containers_of(pod.pod) if each.name == name)
        if not (spec.env or spec.env_from):
            return dict(literal_environment(spec))
        objects = self.kubelet.references.objects(pod.pod.metadata.namespace, spec)
        return environment(_document(pod), msgspec.to_builtins(spec), objects, self.definition.allocatable(), {})

    def run_of(self, namespace: str, name: str, container: str, *, previous: bool) -> Run | str | None:
        """Return the container run whose log is requested, or why there is none, or None when the pod is not here."""
        pods = self.kubelet.table.pods.values()
        pod = next((each for each in pods if each.pod.metadata.key == Key(namespace, name)), None)
        if pod is None:
            return None
        target = next((c for c in pod.containers if c.name == container), None)
        if target is None:
            return f'container "{container}" in pod "{name}" is not available'
        reason = waiting_reason(pod, target)
        speaks = partial(command_output, pod.pod, container, self._environment(pod, container))
        return run_of(name, target, reason, self.now(), self.host.times.offset_s, previous=previous, speaks=speaks)


def _document(pod: Pod) -> Document:
    """Return what the downward API may say of a pod that is here."""
    found: Document = msgspec.to_builtins(pod.pod)
    found.setdefault("spec", {})["nodeName"] = pod.node.name
    address = {"podIP": pod.pod_ip, "podIPs": [{"ip": pod.pod_ip}]}
    found["status"] = {**address, "hostIP": pod.node.host_ip, "hostIPs": [{"ip": pod.node.host_ip}]}
    return found


def _facts(node: Node) -> NodeFacts:
    labels = node.metadata.labels
    return NodeFacts(node.metadata.name, labels, node.spec.taints, labels.get("kubernetes.io/os", "linux"))


def _crc(text: str) -> int:
    found = 0
    for byte in text.encode():
        found = (found * 31 + byte) & 0x7FFF
    return found
