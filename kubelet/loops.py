"""One node's loops: register, follow its pods, feed its machine, perform what that wants, beat.

Tasks exist for watches and for calls in flight; nothing else waits in a task of its own.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import structlog

from kubelet.admission import NodeFacts
from kubelet.config import NodeDefinition
from kubelet.effects import (
    CallUnbind,
    DeletePod,
    EndSpan,
    Log,
    PlayStage,
    ReadNode,
    ReadPod,
    ReportNode,
    Save,
    SetTimer,
    SpanStage,
    StartSpan,
    Tell,
    TellNode,
    WriteStatuses,
)
from kubelet.fake_cri import PodRecord, container_log
from kubelet.host import Host
from kubelet.kubelet import Kubelet
from kubelet.node_status import REPORT_PERIOD_S, NodeReport, node_document
from kubelet.pod_traces import PodTraces
from kubelet.requests import lease_request, renewal_request, status_request, unbind_request
from kubelet.stage_playing import StagePlayer
from kubelet.status_manager import Write
from kubelet.topology_reporting import TopologyReporting
from kubelet.view import KubeletPod, WorkerKey, worker_key
from services.api.errors import ApiError, Conflict, NotFound, UnknownOutcome
from services.api.kinds.node import Node
from services.api.meta import Key
from services.api.wire import Api, Request, Response
from services.client.client import Client, delete_request
from services.client.informer import Informer
from services.client.recorder import Recorder
from services.reconcile.controller import Change
from services.runtime.config import EXIT_LOCKED, StartError

SPREAD_ABOVE_NODES = 20
SPREAD_S = 5.0
REGISTER_RETRY_MIN_S, REGISTER_RETRY_MAX_S = 0.1, 7.0
LEASE_TRIES = 5
log = structlog.get_logger()

_POD = msgspec.json.Decoder(KubeletPod)
_NODE = msgspec.json.Decoder(Node)


class Agent:
    """One node: its identity, its watches, its machine."""

    def __init__(self, host: Host, definition: NodeDefinition, index: int) -> None:
        self.host, self.definition, self.name = host, definition, definition.name
        config = host.config
        self.session = _uid(host.random.getrandbits(128))
        self.report = NodeReport(
            definition,
            session=self.session,
            boot_id=_uid(host.random.getrandbits(128)),
            address=config.address,
            port=config.port or max(0, config.health_port),
        )
        number = (config.first + index) if config.nodes else _crc(definition.name)
        self.kubelet = Kubelet(
            definition,
            settings=host.settings,
            latency=host.latency,
            policy=host.policy_of(definition),
            times=host.times,
            host_ip=config.address,
            pod_network=f"10.{64 + (number >> 8) % 128}.{number & 255}",
        )
        self.topology: TopologyReporting | None = None
        if TopologyReporting.is_wanted(host, definition):
            self.topology = TopologyReporting(host, self, definition, self.kubelet)
        self.api: Api | None = None
        self.client: Client | None = None
        self.node_uid = ""
        self.is_registered = False
        self.is_paused = False
        self.must_read = False
        self.pods: Informer[KubeletPod] | None = None
        self._postponed: list[tuple[str, WorkerKey]] = []
        self._recorder: Recorder | None = None
        self.traces = PodTraces(host.seams.tracer, self.name)
        self.stages = StagePlayer(host, self) if host.stages else None
        self._is_writing = False
        self._is_reporting = False
        self._reports_again = False
        self._is_renewing = False
        self._tokens, self._tokens_at_s = 2 * config.status_qps, 0.0
        self.status_writes = self.status_failures = self.lease_renewals = self.node_writes = 0

    # --- life ---

    async def live(self) -> None:
        """Register, open a session, then follow the node's pods until cancelled."""
        if len(self.host.agents) > SPREAD_ABOVE_NODES:
            await asyncio.sleep(self.host.random.uniform(0.0, SPREAD_S))
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
        self._start_heartbeats(now)
        assert self.api is not None
        pods = Informer(
            self.api, KubeletPod, clock=self.host.clock, random=self.host.random,
            field_selector=f"spec.nodeName={self.name}", keep_documents=self.stages is not None, resource="pods",
            events=self.host.seams.events,
        )  # fmt: skip
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
        try:
            stored = await self.client.create("nodes", wanted)
        except Conflict:
            stored = await self.client.get("nodes", Key("", self.name))
            labels = stored["metadata"].get("labels") or {}
            missing = {k: v for k, v in wanted["metadata"]["labels"].items() if labels.get(k) != v}
            if missing:
                stored = await self.client.patch("nodes", Key("", self.name), {"metadata": {"labels": missing}})
        for condition in (stored.get("status") or {}).get("conditions") or ():
            self.report.seen(condition["type"], condition["status"], condition.get("lastTransitionTime") or "")
        self.node_uid = stored["metadata"].get("uid", "")
        host.seams.events.write("kubelet.session", node=self.name, data={"session": self.session, "acked": False})
        status = self.report.status(host.clock.wall())
        if self.stages is not None:
            self.stages.registering(stored, status)
        stored = await self.client.patch(
            "nodes", Key("", self.name), {"status": status}, subresource="status", patch_type="strategic"
        )
        self.node_writes += 1
        host.seams.events.write("kubelet.session", node=self.name, data={"session": self.session, "acked": True})
        self._take_node(msgspec.convert(stored, Node))
        self.is_registered = True
        if self.stages is not None:
            self.stages.seen_node(stored)

    def _start_heartbeats(self, now: float) -> None:
        period_s = self.host.lease_duration_s / 4
        self.host.spawn(self._renew())
        if self.topology is not None and self.client is not None:
            self.topology.begin(self.client, now)
        # Nodes that start together should not beat together for ever.
        phase_s = self.host.random.uniform(0.5, 1.0) if len(self.host.agents) > SPREAD_ABOVE_NODES else 1.0
        self.host.set_timer(now + phase_s * period_s, self, "lease")
        self.host.set_timer(now + self.host.random.uniform(0.5, 1.0) * REPORT_PERIOD_S, self, "report")

    @property
    def is_ready(self) -> bool:
        """Whether the node is registered and knows its pods."""
        return self.is_registered and self.pods is not None and self.pods.has_synced

    def boot(self) -> None:
        """The machine was booted: nothing of what ran runs any more."""
        self.host.seams.events.write("node.boot", node=self.name, data={"boot_id": self.report.boot_id})

    def erase(self, record: PodRecord, key: WorkerKey) -> None:
        """Forget a record of before the boot."""
        gone = msgspec.structs.replace(record, containers=[], is_gone=True)
        self.host.journal.put(self.name, key, 0, msgspec.json.encode(gone) + b"\n", self._saved)

    def recover(self, record: PodRecord, key: WorkerKey) -> None:
        """The runtime still holds this from before the process began."""
        self.kubelet.records[key] = record

    def disk_changed(self, *, has_trouble: bool) -> None:
        """The disk began or ceased to make trouble."""
        self.report.has_disk_trouble = has_trouble
        self.report_soon()

    def was_away(self) -> None:
        """The process was frozen for longer than the grace period: read before acting (N6)."""
        self.must_read = True
        self.report_soon()

    # --- what the watches bring ---

    def _pod_changed(self, change: Change[KubeletPod]) -> None:
        self.kubelet.pod_changed(change.old, change.new, change.traceparent, self.host.clock.now())

    def _pods_progressed(self) -> None:
        now = self.host.clock.now()
        has_all = self.pods is not None and self.pods.has_synced
        self.kubelet.settle(now)
        if has_all and (self.kubelet.records or not self.kubelet.resizing.has_sources):
            self.kubelet.sources_ready(now)
        self.drain()

    async def _register_again(self) -> None:
        while not self.is_registered:
            try:
                await self._register()
            except (ApiError, UnknownOutcome) as error:
                log.warning("node.registration_failed", node=self.name, reason=str(error))
                await asyncio.sleep(REGISTER_RETRY_MAX_S)

    def _take_node(self, node: Node) -> None:
        self.kubelet.node_changed(_facts(node))
        self.node_uid = node.metadata.uid or self.node_uid

    # --- time ---

    def fire(self, what: str, key: WorkerKey, now: float) -> None:
        """A timer of this node is due."""
        match what:
            case "tick":
                self.host.tick()
            case "lease":
                self.host.set_timer(now + self.host.lease_duration_s / 4, self, "lease")
                if not self._is_renewing:
                    self.host.spawn(self._renew())
            case "report":
                self.host.set_timer(now + REPORT_PERIOD_S, self, "report")
                self.report_soon()
            case "topology":
                assert self.topology is not None
                self.topology.tick(now)
            case "retry-report":
                self.report_soon()
            case "stage-node" | "read-node":
                if self.stages is not None:
                    self.stages.fire(what, now)
            case _ if self.must_read or self.is_paused:
                self._postponed.append((what, key))
                if not self.is_paused:
                    self.is_paused, self.must_read = True, False
                    self.host.spawn(self._read_before_acting())
            case _:
                self.kubelet.due(what, key, now)

    async def _read_before_acting(self) -> None:
        """We were away longer than the grace period: read our pods live before anything else (N6)."""
        assert self.client is not None
        assert self.pods is not None
        while True:
            try:
                items, rv = await self.client.list_raw("pods", field_selector=f"spec.nodeName={self.name}")
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
        self.kubelet.settle(now)
        postponed, self._postponed = self._postponed, []
        for what, worker in postponed:
            self.kubelet.due(what, worker, now)
        self.drain()

    # --- effects ---

    def drain(self) -> None:
        """Perform what the machine wants, in order."""
        out = self.kubelet.out
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
        elif kind is Tell:
            self._tell(effect)
        elif kind is WriteStatuses:
            self._write_statuses_soon()
        elif kind is Save:
            self.host.journal.put(self.name, effect.key, effect.seq, effect.data, self._saved)
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
                self.host.spawn(self._unbind(effect))
            case PlayStage(key=key):
                assert self.stages is not None
                self.host.spawn(self.stages.play(effect, self.traces.traceparent(key)))
            case ReadPod(key=key, pod=pod):
                self.host.spawn(self._read_pod(key, pod))
            case ReadNode():
                self.host.spawn(self._read_node(effect))
            case ReportNode(conditions=conditions):
                self.report.pressures = conditions
                self.report_soon()
            case TellNode():
                self._events().event(
                    kind="Node", api_version="v1", key=Key("", self.name), uid=self.node_uid,
                    reason=effect.reason, message=effect.message, type=effect.type,
                )  # fmt: skip
            case DeletePod(key=key, pod=pod, grace_s=grace_s):
                self.host.spawn(self._delete(key, pod, grace_s))

    def _saved(self, key: WorkerKey, seq: int) -> None:
        self.kubelet.saved(key, seq, self.host.clock.now())
        self.host.touch(self)

    def _tell(self, tell: Tell) -> None:
        if tell.type == "Normal" and self.host.config.pod_events == "warnings":
            return
        self._events().event(
            kind="Pod",
            api_version="v1",
            key=tell.pod.metadata.key,
            uid=tell.pod.metadata.uid,
            reason=tell.reason,
            message=tell.message,
            type=tell.type,
            traceparent=self.traces.traceparent(worker_key(tell.pod)),
        )

    def _events(self) -> Recorder:
        if self._recorder is None:
            assert self.client is not None
            self._recorder = Recorder(
                self.client, self.host.clock, self.host.random, component="kubelet", host=self.name
            )
            self.host.spawn(self._recorder.run())
        return self._recorder

    # --- calls ---

    async def _call(self, request: Request) -> Response | None:
        """Return the answer, or None when nobody knows."""
        assert self.api is not None
        try:
            return await self.api.call(request)
        except UnknownOutcome:
            return None

    def _write_statuses_soon(self) -> None:
        if self.api is None:
            return
        if self.kubelet.settings.writes_at_once:
            while (write := self.kubelet.next_write(self.host.clock.now())) is not None:
                self.host.spawn(self._write_status(write))
        elif not self._is_writing:
            self._is_writing = True
            self.host.spawn(self._write_statuses())

    async def _write_statuses(self) -> None:
        """Write serially until the API server has everything (kubelet 4)."""
        try:
            while (write := self.kubelet.next_write(self.host.clock.now())) is not None:
                if self.host.config.status_qps > 0 and (wait_s := self._spend_token()) > 0:
                    await asyncio.sleep(wait_s)
                await self._write_status(write)
        finally:
            self._is_writing = False
        self.drain()  # what turned out to be known already may have been waited for: a delete, a start

    def _spend_token(self) -> float:
        """Take one token of the write rate; return how long to wait for it."""
        qps, now = self.host.config.status_qps, self.host.clock.now()
        self._tokens = min(2 * qps, self._tokens + (now - self._tokens_at_s) * qps)
        self._tokens_at_s = now
        self._tokens -= 1
        return max(0.0, -self._tokens / qps)

    async def _write_status(self, write: Write) -> None:
        pod = self.kubelet.pods.get(write.key.uid)
        if pod is None:
            return
        request = status_request(pod, write, self.traces.traceparent(write.key))
        response = await self._call(request)
        code, reason = _outcome(response)
        self.status_writes += 1
        if not 200 <= code < 300:
            self.status_failures += 1
        self.kubelet.status_written(write, code, reason, self.host.clock.now())
        self.drain()

    async def _unbind(self, call: CallUnbind) -> None:
        request = unbind_request(
            call, self.name, self.session, self.traces.stage_traceparent(call.key), fence=self.host.settings.fence
        )
        response = await self._call(request)
        code, reason = _outcome(response)
        retry_after_s: float | None = None
        names_pod = True
        if response is not None and not response.is_ok:
            error = response.error()
            retry_after_s = error.retry_after_s
            names_pod = error.details.get("name") == call.pod.metadata.name
        self.kubelet.unbind_answered(
            call.key, code, reason, self.host.clock.now(),
            retry_after_s=retry_after_s, names_pod=names_pod, jitter=self.host.random.random(),
        )  # fmt: skip
        self.drain()

    async def _read_pod(self, key: WorkerKey, pod: KubeletPod) -> None:
        assert self.client is not None
        found: KubeletPod | None = None
        while True:
            try:
                found = _POD.decode(await self.client.get_raw("pods", pod.metadata.key))
                break
            except (ApiError, msgspec.DecodeError) as error:
                if isinstance(error, ApiError) and error.code in (429, 503, 504):
                    await asyncio.sleep(1.0)
                    continue
                break
            except UnknownOutcome:
                await asyncio.sleep(1.0)
        self.kubelet.pod_read(key, found, self.host.clock.now())
        self.drain()

    async def _read_node(self, read: ReadNode) -> None:
        assert self.client is not None
        node: Node | None = None
        try:
            node = _NODE.decode(await self.client.get_raw("nodes", Key("", self.name)))
        except (ApiError, UnknownOutcome, msgspec.DecodeError) as error:
            log.warning("node.read_failed", node=self.name, reason=str(error))
        now = self.host.clock.now()
        if not read.for_session:
            self.kubelet.node_read(None if node is None else _facts(node), now)
        elif node is None:
            await asyncio.sleep(1.0)
            self.host.spawn(self._read_node(read))
            return
        else:
            theirs = node.status.node_info.kubelet_session
            if theirs != self.session:
                raise StartError(f"node {self.name}: another kubelet opened session {theirs}", EXIT_LOCKED)
            self.kubelet.session_read(read.key, True, now)
        self.drain()

    async def _delete(self, key: WorkerKey, pod: KubeletPod, grace_s: int | None) -> None:
        assert self.client is not None
        request = delete_request(
            "pods", pod.metadata.key, uid=key.uid, grace_period_s=grace_s, traceparent=self.traces.traceparent(key)
        )
        code = 0
        try:
            code = (await self.client.call(request)).code
        except UnknownOutcome as error:
            log.warning("pod.delete_failed", node=self.name, pod=pod.metadata.name, reason=str(error))
        self.kubelet.delete_answered(key, code, self.host.clock.now())
        self.drain()

    # --- heartbeats (kubelet 2) ---

    async def _renew(self) -> None:
        """Renew the Lease, trying a few times; what fails now is tried again at the next beat."""
        self._is_renewing = True
        host = self.host
        try:
            for attempt in range(LEASE_TRIES):
                request = renewal_request(self.name, host.clock.wall(), host.lease_duration_s)
                response = await self._call(request)
                if response is not None and response.code == 404:
                    response = await self._create_lease()
                if response is not None and response.is_ok:
                    self.lease_renewals += 1
                    if attempt:
                        # We were cut off: the control plane may think us dead.
                        self.report_soon()
                    return
                await asyncio.sleep(0.2 * 2**attempt)
        finally:
            self._is_renewing = False

    async def _create_lease(self) -> Response | None:
        request = lease_request(self.name, self.node_uid, self.host.lease_duration_s, self.host.clock.wall())
        return await self._call(request)

    def report_soon(self) -> None:
        """Write the node's status, unless that is being done already."""
        if not self.is_registered or (self.stages is not None and self.stages.moves_node):
            return
        if self._is_reporting:
            self._reports_again = True
            return
        self._is_reporting = True
        self.host.spawn(self._report())

    async def _report(self) -> None:
        try:
            again = True
            while again:
                self._reports_again = False
                await self._report_once()
                again = self._reports_again
        finally:
            self._is_reporting = False

    def node_gone(self) -> None:
        """Somebody deleted our Node: register again, under the same session."""
        if self.is_registered:
            self.is_registered = False
            self.host.spawn(self._register_again())

    async def _report_once(self) -> None:
        assert self.client is not None
        status = self.report.status(self.host.clock.wall())
        try:
            stored = await self.client.patch(
                "nodes", Key("", self.name), {"status": status}, subresource="status", patch_type="strategic"
            )
        except NotFound:
            self.node_gone()
            return
        except (ApiError, UnknownOutcome) as error:
            log.warning("node.report_failed", node=self.name, reason=str(error))
            self.host.set_timer(self.host.clock.now() + 10.0, self, "retry-report")
            return
        self.node_writes += 1
        self._take_node(msgspec.convert(stored, Node))

    # --- logs ---

    def log_of(self, namespace: str, name: str, container: str, *, previous: bool) -> bytes | None:
        """Return a container's log, or None when no such container is here."""
        for worker in self.kubelet.workers.values():
            meta = worker.pod.metadata
            if meta.name == name and meta.namespace == namespace:
                for found in worker.containers:
                    if found.name == container or not container:
                        if previous and found.last is None:
                            return None
                        now = self.host.clock.now()
                        return container_log(found, now, self.host.times.offset_s)
        return None


def _facts(node: Node) -> NodeFacts:
    return NodeFacts(
        node.metadata.name,
        node.metadata.labels,
        node.spec.taints,
        node.metadata.labels.get("kubernetes.io/os", "linux"),
    )


def _outcome(response: Response | None) -> tuple[int, str]:
    if response is None:
        return 0, ""
    return response.code, "" if response.is_ok else response.error().reason


def _uid(bits: int) -> str:
    """Return a UUID4-shaped text."""
    text = f"{bits & ~(0xF << 76) & ~(0x3 << 62) | (4 << 76) | (2 << 62):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _crc(text: str) -> int:
    found = 0
    for byte in text.encode():
        found = (found * 31 + byte) & 0x7FFF
    return found
