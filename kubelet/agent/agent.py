"""One node's loops: register, follow its pods, feed its machine, perform what that wants, beat.

Tasks exist for watches and for calls in flight; nothing else waits in a task of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

import msgspec
import structlog

from kubelet.agent.claim_calls import ClaimCalls
from kubelet.agent.device_sockets import DeviceSockets
from kubelet.agent.heartbeats import SPREAD_ABOVE_NODES, Heartbeats
from kubelet.agent.host import Host
from kubelet.agent.mirror_calls import MirrorCalls
from kubelet.agent.pod_calls import PodCalls, facts
from kubelet.agent.pod_traces import PodTraces
from kubelet.agent.stage_player import StagePlayer
from kubelet.agent.topology_writer import TopologyReporting
from kubelet.effects import (
    CallUnbind,
    CreateMirror,
    DeleteMirror,
    DeletePod,
    EndSpan,
    Log,
    PlayStage,
    PowerOff,
    PublishSlices,
    ReadClaims,
    ReadNode,
    ReadPod,
    RecordEvent,
    RecordNodeEvent,
    ReportNode,
    Save,
    SetTimer,
    SpanStage,
    StartSpan,
    WriteStatuses,
)
from kubelet.kubelet import Kubelet
from kubelet.managers.device_calls import CallPlugin, DevicesChanged
from kubelet.node.definition import NodeDefinition
from kubelet.node.health import parse_node_faults
from kubelet.node.status import NodeReport, node_document
from kubelet.pod.context import NodeRuntime
from kubelet.pod.logs import Run, run_of
from kubelet.pod.status import waiting_reason
from kubelet.runtime.boots import Boot, boot_id_of
from kubelet.runtime.images import NodeImages
from kubelet.runtime.pleg import Pleg
from kubelet.runtime.records import PodRecord
from kubelet.runtime.script import StartFaults
from kubelet.runtime.volumes import NodeVolumes
from kubelet.view import KubeletPod, WorkerKey, worker_key
from services.api.errors import ApiError, Conflict, UnknownOutcome
from services.api.kinds.node import Node
from services.api.meta import Key
from services.api.wire import Api
from services.client.client import Client
from services.client.informer import Informer
from services.client.recorder import Recorder
from services.reconcile.controller import Change

REGISTER_RETRY_MIN_S, REGISTER_RETRY_MAX_S = 0.1, 7.0
log = structlog.get_logger()

_POD = msgspec.json.Decoder(KubeletPod)


class Agent:
    """One node: its identity, its watches, its machine."""

    def __init__(self, host: Host, definition: NodeDefinition, index: int) -> None:
        self.host, self.definition, self.name = host, definition, definition.name
        config = host.config
        self.session = _uid(host.random.getrandbits(128))
        self.report = NodeReport(
            definition,
            session=self.session,
            address=config.address,
            port=config.port or max(0, config.health_port),
        )
        number = (config.first + index) if config.nodes else _crc(definition.name)
        draws = host.latency.for_pod(definition.name, "relist")
        runtime = NodeRuntime(
            definition.name,
            config.address,
            host.latency,
            host.policy_of(definition),
            host.times,
            Pleg(host.switches.pleg_mode, draws.of("relist"), host.clock.now(), draws.share("phase", 0)),
            StartFaults(parse_node_faults(definition.start_faults).all_starts),
            NodeImages(definition.present_images(), pullers=definition.pullers),
            NodeVolumes(definition.attachable_volumes),
        )
        pod_network = f"10.{64 + (number >> 8) % 128}.{number & 255}"
        self.kubelet = Kubelet(definition, runtime, switches=host.switches, pod_network=pod_network)
        self.kubelet.managers.stopwatch = host.clock.now
        self.topology: TopologyReporting | None = None
        if TopologyReporting.is_wanted(host, definition):
            self.topology = TopologyReporting(host, self, definition, self.kubelet)
        self.api: Api | None = None
        self.client: Client | None = None
        self.node_uid = ""
        self.boot = Boot("", False, ())
        self.is_registered = False
        self.is_off = False
        self.is_paused = False
        self.must_read = False
        self.pods: Informer[KubeletPod] | None = None
        self._postponed: list[Callable[[float], None]] = []
        self._recorder: Recorder | None = None
        self.traces = PodTraces(host.seams.tracer, self.name)
        self.stages = StagePlayer(host, self) if host.stages else None
        self.devices = DeviceSockets(host, self, self.kubelet) if definition.takes_plugins else None
        self.calls = PodCalls(host, self)
        self.claims = ClaimCalls(host, self)
        self._mirrors = MirrorCalls(host, self)
        self._unrecorded: list[RecordEvent] = []
        self.heartbeats = Heartbeats(host, self)
        self.node_writes = 0

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
        delay_s = REGISTER_RETRY_MIN_S
        while True:
            try:
                await self._register()
                break
            except (ApiError, UnknownOutcome) as error:
                log.warning("node.registration_failed", node=self.name, reason=str(error), backoff_s=delay_s)
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, REGISTER_RETRY_MAX_S)
        now = self.host.clock.now()
        if self.boot.is_new:
            self._events().event(
                kind="Node",
                api_version="v1",
                key=Key("", self.name),
                uid=self.node_uid,
                reason="Rebooted",
                message=f"Node {self.name} has been rebooted, boot id: {self.report.boot_id}",
                type="Warning",
            )
        if self.topology is not None and self.client is not None:
            self.topology.begin(self.client, now)
        self.kubelet.claims.begin(now)
        self.drain()
        assert self.api is not None
        pods = Informer(
            self.api,
            KubeletPod,
            clock=self.host.clock,
            random=self.host.random,
            field_selector=f"spec.nodeName={self.name}",
            keep_documents=self.stages is not None,
            resource="pods",
            events=self.host.seams.events,
            spread_s=spread_s,
        )
        if self.stages is not None:
            self.stages.follow(pods)
        pods.on_change(self._pod_changed)
        pods.on_progress(self._pods_progressed)
        self.pods = pods
        await pods.run()

    async def _register(self) -> None:
        """Leave a Node that is ours, with our session acknowledged (N5)."""
        host = self.host
        if self.api is None:
            self.api = await host.seams.transport.node_api(self.name)
            self.client = Client(self.api, host.clock, host.random, field_manager="kubelet")
        assert self.client is not None
        wanted = node_document(self.definition)
        is_new = True
        try:
            stored = await self.client.create("nodes", wanted)
        except Conflict:
            is_new = False
            stored = await self.client.get("nodes", Key("", self.name))
            labels = stored["metadata"].get("labels") or {}
            missing = {k: v for k, v in wanted["metadata"]["labels"].items() if labels.get(k) != v}
            if missing:
                stored = await self.client.patch("nodes", Key("", self.name), {"metadata": {"labels": missing}})
        for condition in (stored.get("status") or {}).get("conditions") or ():
            self.report.seen(condition["type"], condition["status"], condition.get("lastTransitionTime") or "")
        self.node_uid = stored["metadata"].get("uid", "")
        self.heartbeats.begin(host.clock.now(), is_new=is_new)  # whether or not a status can be written (kubelet 2.2)
        host.seams.events.write("kubelet.session", node=self.name, data={"session": self.session, "acked": False})
        wall_s = host.clock.wall()
        status, written = self.report.status(wall_s), self.report.status(wall_s)
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
        self._record_pending()
        if self.stages is not None:
            self.stages.seen_node(stored)

    def _record_pending(self) -> None:
        """Record the Events of static pods that ran before the API server was reached."""
        unrecorded, self._unrecorded = self._unrecorded, []
        for event in unrecorded:
            self._record(event)
        self.drain()

    def files_changed(self, files: Mapping[str, bytes]) -> None:
        """Take the manifests of static pods as they are now."""
        clock = self.host.clock
        for file, why in self.kubelet.files_changed(files, clock.wall(), clock.now()).items():
            log.warning("static_pod.unreadable", node=self.name, file=file, reason=why)
        self.drain()

    def faults_changed(self, text: str) -> None:
        """Take what is wrong with the node from now on, in the words of `kubelet/node/health.py`."""
        try:
            faults = parse_node_faults(text or self.definition.start_faults)
        except ValueError as error:
            log.warning("node.faults_unreadable", node=self.name, reason=str(error))
            return
        self.kubelet.node.faults_changed(faults, self.host.clock.now())
        self.drain()

    def shut_down(self) -> None:
        """End the pods in good order, then ask to be switched off."""
        self.kubelet.node.shut_down(self.host.clock.now())
        self.drain()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do some work in a task that ends with the node's power."""
        self.host.power.start(self, work)

    @property
    def writes_status(self) -> bool:
        """Whether the Node's status is the kubelet's to write, not that of stages."""
        return self.stages is None or not self.stages.moves_node

    def node_gone(self) -> None:
        """Our Node was deleted: register again, under the same session."""
        if self.is_registered:
            self.is_registered = False
            self.spawn(self._register_again())

    @property
    def is_ready(self) -> bool:
        """Whether the node is registered and knows its pods, or has no power."""
        return self.is_off or (self.is_registered and self.pods is not None and self.pods.has_synced)

    def begins(self, boot: Boot) -> None:
        """Learn in which boot of the machine this is; after a new one nothing of what ran runs any more."""
        self.boot = boot
        self.kubelet.is_booted = boot.is_new
        self.report.boot_id = boot_id_of(self.name, boot.id)
        if boot.is_new:
            self.host.seams.events.write("node.boot", node=self.name, data={"boot_id": self.report.boot_id})

    def recover(self, record: PodRecord, key: WorkerKey) -> None:
        """The runtime still holds this from before the process began."""
        self.kubelet.records[key] = record

    def disk_changed(self, *, has_error: bool) -> None:
        """The disk began or ceased to fail."""
        self.report.has_disk_error = has_error
        self.heartbeats.report_soon()

    def was_away(self) -> None:
        """The process was frozen for longer than the grace period: read before acting (N6)."""
        if self.is_off:
            return
        self.must_read = True
        self.heartbeats.report_soon()
        if not self.is_paused and self.pods is not None:
            self.is_paused = True
            self.spawn(self._read_before_acting())

    # --- what the watches bring ---

    def _pod_changed(self, change: Change[KubeletPod]) -> None:
        self.kubelet.pod_changed(change.old, change.new, change.traceparent, self.host.clock.now())

    def _pods_progressed(self) -> None:
        now = self.host.clock.now()
        self.host.notice(now)
        if self.is_paused:
            return
        has_all = self.pods is not None and self.pods.has_synced
        self.kubelet.settle(now)
        if has_all and (self.kubelet.records or not self.kubelet.resizes.has_sources):
            self.kubelet.sources_ready(now)
        self.drain()

    async def _register_again(self) -> None:
        while not self.is_registered:
            try:
                await self._register()
            except (ApiError, UnknownOutcome) as error:
                log.warning("node.registration_failed", node=self.name, reason=str(error))
                await asyncio.sleep(REGISTER_RETRY_MAX_S)
        self.kubelet.claims.publish(self.host.clock.now())
        self.drain()

    def _record_node_events(self) -> None:
        """Tell what is new of the node itself, once the API server knows it."""
        news, self.report.news = self.report.news, []
        if self.host.config.pod_events == "warnings" or not self.writes_status:
            return
        for reason, message in news:
            self._events().event(
                kind="Node",
                api_version="v1",
                key=Key("", self.name),
                uid=self.node_uid,
                reason=reason,
                message=message,
                type="Normal",
            )

    def take_node(self, node: Node) -> None:
        """Take the Node as the API server has it."""
        self._record_node_events()
        self.kubelet.admission.node = facts(node)
        self.kubelet.node_seen(node, self.host.clock.now())
        self.node_uid = node.metadata.uid or self.node_uid
        self.kubelet.static_pods.registered(self.node_uid)

    # --- time ---

    def fire(self, what: str, key: WorkerKey, now: float) -> None:
        """A timer of this node is due."""
        match what:
            case "tick":
                self.host.tick()
            case _ if self.is_off:
                pass
            case "lease" | "report" | "retry-report":
                self.heartbeats.fire(what, now)
            case "topology":
                assert self.topology is not None
                self.topology.tick(now)
            case "stage-node" | "read-node":
                if self.stages is not None:
                    self.stages.fire(what, now)
            case _ if self.is_paused:
                self._postponed.append(partial(self.kubelet.due, what, key))
            case _:
                self.kubelet.due(what, key, now)

    async def _read_before_acting(self) -> None:
        """We were away longer than the grace period: read our pods live before anything else (N6)."""
        assert self.client is not None
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
        now = self.host.clock.now()
        self.is_paused = False
        postponed, self._postponed = self._postponed, []
        for work in postponed:
            work(now)
        self._pods_progressed()

    # --- effects ---

    def drain(self) -> None:
        """Perform what the machine wants, in order."""
        out = self.kubelet.out
        if self.is_off:
            out.effects.clear()
        while out.effects:
            effects, out.effects = out.effects, []
            for effect in effects:
                self._perform(effect)
        if self.topology is not None:
            self.topology.look()

    def _perform(self, effect: Any) -> None:
        # The frequent ones first and by their type: there are a score of effects for every pod.
        kind = type(effect)
        if kind is SetTimer:
            self.host.set_timer(effect.at_s, self, effect.what, effect.key)
        elif kind is SpanStage:
            self.traces.stage(effect.key, effect.stage, effect.reason)
        elif kind is RecordEvent:
            self._record(effect)
        elif kind is WriteStatuses:
            self.calls.write_statuses()
        elif kind is Save:
            self.host.journal.put(effect.lines, effect.seq, self._saved)
        elif kind is Log:
            self._log(effect)
        elif kind is StartSpan:
            self.traces.begin(effect.key, effect.pod, effect.traceparent)
        elif kind is EndSpan:
            self.traces.end(effect.key, effect.error)
        else:
            self._ask(effect)

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

    def _ask(self, effect: Any) -> None:
        """Make a call in a task of its own."""
        match effect:
            case CallUnbind():
                self.spawn(self.calls.unbind(effect))
            case PlayStage(key=key):
                assert self.stages is not None
                self.spawn(self.stages.play(effect, self.traces.traceparent(key)))
            case ReadClaims():
                self.spawn(self.claims.read(effect))
            case PublishSlices():
                self.spawn(self.claims.publish(effect))
            case ReadPod(key=key, pod=pod):
                self.spawn(self.calls.read_pod(key, pod))
            case ReadNode():
                self.spawn(self.calls.read_node(effect))
            case ReportNode():
                for field in effect.__struct_fields__:
                    if (value := getattr(effect, field)) is not None:
                        setattr(self.report, field, value)
                self.heartbeats.report_soon()
            case PowerOff():
                self.host.power.cut(self)
            case RecordNodeEvent():
                self._events().event(
                    kind="Node",
                    api_version="v1",
                    key=Key("", self.name),
                    uid=self.node_uid,
                    reason=effect.reason,
                    message=effect.message,
                    type=effect.type,
                )
            case CallPlugin():
                assert self.devices is not None
                self.devices.call(effect)
            case DevicesChanged(registered=registered):
                assert self.devices is not None
                self._show_devices()
                self.devices.save(registered)
            case DeletePod(key=key, pod=pod, grace_s=grace_s):
                self.spawn(self.calls.delete(key, pod, grace_s))
            case CreateMirror():
                self.spawn(self._mirrors.create(effect))
            case DeleteMirror():
                self.spawn(self._mirrors.delete(effect))

    def _show_devices(self) -> None:
        assert self.kubelet.plugins is not None
        shown = dict(self.kubelet.plugins.capacity())
        if shown != self.report.devices:
            self.report.devices = shown
            self.heartbeats.report_soon()

    def _saved(self, key: WorkerKey, seq: int) -> None:
        now = self.host.clock.now()
        self.host.notice(now)
        if self.is_off:
            return
        if self.is_paused:
            self._postponed.append(partial(self.kubelet.saved, key, seq))
            return
        self.kubelet.saved(key, seq, now)
        self.host.touch(self)

    def _record(self, event: RecordEvent) -> None:
        if event.type == "Normal" and self.host.config.pod_events == "warnings":
            return
        if self.client is None:
            self._unrecorded.append(event)  # static pods live before the API server is reached
            return
        self._events().event(
            kind="Pod",
            api_version="v1",
            key=event.pod.metadata.key,
            uid=event.pod.metadata.uid,
            reason=event.reason,
            message=event.message,
            type=event.type,
            traceparent=self.traces.traceparent(worker_key(event.pod)),
        )

    def _events(self) -> Recorder:
        if self._recorder is None:
            assert self.client is not None
            self._recorder = Recorder(
                self.client, self.host.clock, self.host.random, component="kubelet", host=self.name
            )
            self.spawn(self._recorder.run())
        return self._recorder

    # --- logs ---

    def run_of(self, namespace: str, name: str, container: str, *, previous: bool) -> Run | str | None:
        """Return the run whose log is meant, or why there is none, or None when the pod is not here."""
        pod = self.kubelet.table.find(namespace, name)
        if pod is None:
            return None
        found = next((c for c in pod.containers if c.name == container), None)
        if found is None:
            return f'container "{container}" in pod "{name}" is not available'
        reason = waiting_reason(pod, found)
        return run_of(name, found, reason, self.host.clock.now(), self.host.times.offset_s, previous=previous)


def _uid(bits: int) -> str:
    """Return a UUID4-shaped text."""
    text = f"{bits & ~(0xF << 76) & ~(0x3 << 62) | (4 << 76) | (2 << 62):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _crc(text: str) -> int:
    found = 0
    for byte in text.encode():
        found = (found * 31 + byte) & 0x7FFF
    return found
