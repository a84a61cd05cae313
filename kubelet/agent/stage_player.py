"""The stages of one node: gives them documents, performs their operations, and drives the Node by them.

Status is written in the node's name, metadata in its host's, both for one uid alone: a node may not change
the metadata of its pods, as in Kubernetes; the process that hosts it may, a little. If stages drive a Node,
its status comes from them alone; its Lease, its registration and its session stay the kubelet's. A node may
read its Node but not watch it (X-NR1), so other clients' changes are seen late; its ResourceSlices are
listed as often.
"""

from collections.abc import Callable, Sequence

import msgspec
import structlog

from kubelet.agent.node import NodeShell
from kubelet.agent.slice_stages import READ_PERIOD_S, READ_SLICES, STAGE_SLICE, SliceStages
from kubelet.effects import Outbox, PlayStage
from kubelet.stages.manager import FAILED, StageManager
from kubelet.view import KubeletPod
from services.api.errors import ApiError, NotFound, UnknownOutcome
from services.api.meta import Document, Key
from services.api.wire import Api, Request, encode
from services.client.informer import Informer
from services.client.stage_calls import DEADLINE_S, SLICES, Target, ask, requests_of
from services.kwok.documents import STAGE
from services.kwok.stages.lifecycle import Draws, Life, operations
from services.kwok.stages.operation import Operation, Outcome, StageApply, StageDelete, StageEvent
from services.kwok.stages.stage import Stage
from services.kwok.stages.template_functions import Context
from services.kwok.stages.templates import TemplateError

STAGE_TIMERS = ("stage-node", "read-node", READ_SLICES)
SLICE = "ResourceSlice"

log = structlog.get_logger()


class StagePlayer:
    """The stages of one node."""

    def __init__(self, node: NodeShell, out: Outbox) -> None:
        self._host, self._node, self._out = node.host, node, out
        host = node.host
        self._of_pods = self._of("Pod")
        self._of_node = self._of("Node")
        self._slices = SliceStages(
            node,
            self._of(SLICE),
            clock=host.clock,
            events=host.seams.events,
            seed=host.config.stages_seed,
            context=self._context,
            perform=self._perform,
        )
        self._start_s = host.clock.now()
        self._life: Life | None = None
        """Of a Node that stages move: they, not the kubelet, write its status."""
        self._pods: Informer[KubeletPod] | None = None
        self._manager: StageManager | None = None

    def _of(self, kind: str) -> tuple[Stage, ...]:
        return tuple(stage for stage in self._host.stages if stage.kind == kind and stage.is_of_kubelets)

    def stages_changed(self) -> None:
        """Apply the host's present stages: stages are chosen anew for each object."""
        now, wall_s = self._node.now(), self._host.clock.wall()
        if (stages := self._of("Pod")) != self._of_pods:
            self._of_pods = stages
            if self._manager is not None:
                self._manager.replace(stages, now)
        self._slices.replace(self._of(SLICE))
        if (stages := self._of("Node")) != self._of_node:
            self._of_node = stages
            if self._life is not None:
                self._arm(self._life.replace(stages, now, wall_s))
            if self._node.is_registered:
                self._node.spawn(self._read())

    def _context(self, now: float) -> Context:
        report, times = self._node.report, self._host.times
        return Context(
            times.text(now),
            start_time=times.text(self._start_s),
            version=report.version,
            node_name=self._node.name,
            node_ip=report.address,
            node_port=report.port,
        )

    def follow(self, pods: Informer[KubeletPod], new_ip: Callable[[KubeletPod], str]) -> StageManager | None:
        """Return the manager of the pods that stages drive, before the first pod is seen; None: there are no stages."""
        self._pods = pods
        if self._of_pods or STAGE in self._host.kwok_kinds:
            self._manager = StageManager(
                self._of_pods,
                seed=self._host.config.stages_seed,
                times=self._host.times,
                context=self._context,
                new_ip=new_ip,
                read=pods.lister.document,
                out=self._out,
            )
        return self._manager

    async def play(self, effect: PlayStage) -> None:
        """Perform a stage's operations on a pod, and report the outcome."""
        assert self._pods is not None
        assert self._manager is not None
        meta, pod = effect.pod.metadata, effect.pod
        outcome = await self._perform(
            effect.operations,
            Target("pods", meta.key, effect.key.uid, meta.deletion_timestamp is not None),
            record=lambda event: self._out.event(pod, event.reason, event.message, event.type),
            traceparent=self._node.traces.traceparent(effect.key),
        )
        if effect.is_immediate and outcome.body:
            self._pods.offer(outcome.body)
        self._manager.on_played(effect.key, effect.stage, outcome, self._node.now())
        self._node.drain()

    def registering(self, stored: Document, status: Document) -> None:
        """Remove from the first status what the stages of this Node write."""
        self._choose(stored)
        if not self._node.writes_status:
            del status["conditions"]

    def _choose(self, stored: Document) -> None:
        """See whether stages move this Node, and whether they or the kubelet write its status."""
        chosen = [stage for stage in self._of_node if stage.selector.chooses(stored) or not stage.writes_status]
        # Stages that say nothing of the status leave it to the kubelet.
        self._node.writes_status = not any(stage.writes_status for stage in chosen)
        if not chosen:
            self._life = None
        elif self._life is None:
            self._life = Life(self._of_node, Draws(self._host.config.stages_seed, f"Node//{self._node.name}"))
            self._node.set_timer(self._node.now() + READ_PERIOD_S, "read-node")

    def on_registered(self) -> None:
        """Read the node's ResourceSlices from now on, if stages drive any."""
        self._slices.begin()

    def seen_node(self, stored: Document) -> None:
        """Take the newest state of the Node."""
        if self._life is not None:
            self._arm(self._life.observe(stored, self._node.now(), self._host.clock.wall()))

    def _arm(self, due_s: float | None) -> None:
        if due_s is not None:
            self._node.set_timer(due_s, "stage-node")

    def fire(self, what: str, now: float) -> None:
        """Handle a timer of the Node or its slices."""
        if what == READ_SLICES or what.startswith(STAGE_SLICE):
            self._slices.fire(what, now)
            return
        if self._life is None:
            return
        if what == "read-node":
            self._node.set_timer(now + READ_PERIOD_S, "read-node")
            self._node.spawn(self._read())
            return
        turn = self._life.due(now)
        if turn is None:
            return
        try:
            wanted = operations(turn.stage, turn.document, self._context(now))
        except TemplateError as error:
            self._record(StageEvent("Warning", FAILED, str(error)))
            self._arm(self._life.on_played(now, self._host.clock.wall()))
            return
        self._host.seams.events.write("node.stage", node=self._node.name, data={"stage": turn.stage.name})
        self._node.spawn(self._play(turn.stage.name, wanted))

    async def _play(self, stage: str, wanted: list[Operation]) -> None:
        target = Target("nodes", Key("", self._node.name), self._node.node_uid)
        outcome = await self._perform(wanted, target)
        self._node.node_writes += 1
        if self._life is None:
            return
        if outcome.is_refused:
            self._record(StageEvent("Warning", FAILED, f"stage {stage}: {outcome.said}"))
        if outcome.body:
            # A watch would bring it; a node has none of its Node.
            self.seen_node(msgspec.json.decode(outcome.body))
        self._arm(self._life.on_played(self._node.now(), self._host.clock.wall(), is_lost=outcome.is_lost))

    async def _read(self) -> None:
        try:
            stored = await self._node.client.get("nodes", Key("", self._node.name))
            if STAGE in self._host.kwok_kinds:
                was_ours = self._node.writes_status
                self._choose(stored)
                if self._node.writes_status and not was_ours:
                    self._node.report_soon()
            self.seen_node(stored)
        except NotFound:
            self._node.node_gone()
        except (ApiError, UnknownOutcome) as error:
            log.warning("node.read_failed", node=self._node.name, reason=str(error))

    def _record(self, event: StageEvent) -> None:
        self._node.record(event.reason, event.message, event.type)

    async def _perform(
        self,
        wanted: Sequence[Operation],
        target: Target,
        *,
        record: Callable[[StageEvent], None] | None = None,
        traceparent: str = "",
    ) -> Outcome:
        """Do it in order; what fails ends it. `record`: takes Events, where they are not about the Node."""
        assert self._node.api is not None
        own, host = self._node.api, self._host.seams.transport.api()
        outcome = Outcome(200)
        for operation in wanted:
            if isinstance(operation, StageEvent):
                (record or self._record)(operation)
                continue
            if isinstance(operation, StageApply):
                applied = await _apply(own, operation, traceparent)
                if not applied.is_done:
                    return applied
                if applied.body:
                    self._slices.observe(msgspec.json.decode(applied.body))
                continue
            for request in requests_of(operation, target, traceparent):
                is_own = (
                    request.subresource == "status" or isinstance(operation, StageDelete) or target.resource == SLICES
                )
                outcome = await ask(own if is_own else host, request)
                if not outcome.is_done:
                    return outcome
        return outcome


async def _apply(own: Api, operation: StageApply, traceparent: str) -> Outcome:
    """Create a slice in the node's name, or replace it."""
    request = Request(
        verb="create",
        resource=SLICES,
        name=operation.name,
        body=encode(operation.document),
        traceparent=traceparent,
        field_manager="kubelet-stages",
        deadline_s=DEADLINE_S,
    )
    outcome = await ask(own, request)
    if outcome.code == 409:
        outcome = await ask(own, msgspec.structs.replace(request, verb="update"))
    return outcome
