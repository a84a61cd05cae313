"""What one node's shell does for stages: it gives them documents, performs what they want, and moves the Node.

A Node that stages move has its status from them alone; its Lease, its registration and its session stay the
kubelet's. A node may read its Node but not watch it (X-NR1), so what others change of it is seen late.
"""

from __future__ import annotations

from typing import Protocol

import msgspec
import structlog

from kubelet.agent.host import Host, Tenant
from kubelet.agent.stage_calls import Outcome, Target, perform
from kubelet.effects import Operation, PlayStage, StageEvent
from kubelet.kubelet import Kubelet
from kubelet.node.status import NodeReport
from kubelet.stages.lifecycle import Draws, Life
from kubelet.stages.manager import FAILED, StageManager
from kubelet.stages.operations import operations
from kubelet.stages.template_functions import Context
from kubelet.stages.templates import TemplateError
from kubelet.view import KubeletPod
from services.api.errors import ApiError, NotFound, UnknownOutcome
from services.api.meta import Document, Key
from services.api.release import KUBERNETES
from services.api.wire import Api
from services.client.client import Client
from services.client.informer import Informer
from services.client.recorder import Recorder

READ_PERIOD_S = 10.0
"""How often a Node that stages move is read: as often as a kubelet computes its status (kubelet 1)."""
log = structlog.get_logger()


class Node(Tenant, Protocol):
    """What the player needs of the node it plays for."""

    kubelet: Kubelet
    report: NodeReport
    api: Api | None
    client: Client | None
    pods: Informer[KubeletPod] | None
    node_uid: str
    node_writes: int

    def node_gone(self) -> None:
        """The Node was deleted."""


class StagePlayer:
    """The stages of one node."""

    def __init__(self, host: Host, node: Node) -> None:
        self._host, self._node = host, node
        self._of_pods = tuple(s for s in host.stages if s.kind == "Pod")
        self._of_node = tuple(s for s in host.stages if s.kind == "Node")
        self._start_s = host.clock.now()
        self._recorder: Recorder | None = None
        self._life: Life | None = None

    @property
    def moves_node(self) -> bool:
        """Whether stages, not the kubelet, write the Node's status."""
        return self._life is not None

    def _context(self, now: float) -> Context:
        report, times = self._node.report, self._host.times
        return Context(
            times.text(now),
            start_time=times.text(self._start_s),
            version=KUBERNETES,
            node_name=self._node.name,
            node_ip=report.address,
            node_port=report.port,
        )

    # --- pods ---

    def follow(self, pods: Informer[KubeletPod]) -> None:
        """Let stages move the pods they choose; before the first of them is seen."""
        if self._of_pods:
            kubelet = self._node.kubelet
            kubelet.stages = StageManager(
                self._of_pods,
                seed=self._host.config.stages_seed,
                times=self._host.times,
                context=self._context,
                new_ip=kubelet.new_ip,
                read=pods.lister.document,
                out=kubelet.out,
            )

    async def play(self, effect: PlayStage, traceparent: str) -> None:
        """Perform what a stage wants of a pod, and report."""
        meta, kubelet, node = effect.pod.metadata, self._node.kubelet, self._node
        assert node.api is not None
        assert node.pods is not None
        target = Target("pods", meta.key, effect.key.uid, meta.deletion_timestamp is not None)
        outcome = await perform(
            effect.operations,
            target,
            node.api,
            self._host.seams.transport.api(),
            lambda event: kubelet.out.event(effect.pod, event.reason, event.message, event.type),
            traceparent,
        )
        if effect.is_immediate and outcome.body:
            node.pods.offer(outcome.body)
        if kubelet.stages is not None:
            kubelet.stages.played(effect.key, effect.stage, outcome.code, outcome.said, self._host.clock.now())
        node.drain()

    # --- the Node ---

    def registering(self, stored: Document, status: Document) -> None:
        """Leave out of the first status what the stages of this Node are to say."""
        if not any(stage.selector.chooses(stored) for stage in self._of_node):
            self._life = None
            return
        del status["conditions"]
        if self._life is None:
            self._life = Life(self._of_node, Draws(self._host.config.stages_seed, f"Node//{self._node.name}"))
            self._host.set_timer(self._host.clock.now() + READ_PERIOD_S, self._node, "read-node")

    def seen_node(self, stored: Document) -> None:
        """Take the newest state of the Node."""
        if self._life is not None:
            now = self._host.clock.now()
            self._arm(self._life.seen(stored, now, self._host.clock.wall()))

    def _arm(self, due_s: float | None) -> None:
        if due_s is not None:
            self._host.set_timer(due_s, self._node, "stage-node")

    def fire(self, what: str, now: float) -> None:
        """A timer about the Node is due."""
        if self._life is None:
            return
        if what == "read-node":
            self._host.set_timer(now + READ_PERIOD_S, self._node, "read-node")
            self._node.spawn(self._read())
            return
        turn = self._life.due(now)
        if turn is None:
            return
        try:
            wanted = operations(turn.stage, turn.document, self._context(now))
        except TemplateError as error:
            self._record(StageEvent("Warning", FAILED, str(error)))
            self._arm(self._life.played(now, self._host.clock.wall()))
            return
        self._host.seams.events.write("node.stage", node=self._node.name, data={"stage": turn.stage.name})
        self._node.spawn(self._play(turn.stage.name, wanted))

    async def _play(self, stage: str, wanted: list[Operation]) -> None:
        assert self._node.api is not None
        target = Target("nodes", Key("", self._node.name), self._node.node_uid)
        outcome = await perform(wanted, target, self._node.api, self._host.seams.transport.api(), self._record, "")
        self._node.node_writes += 1
        self._ended(stage, outcome)

    def _ended(self, stage: str, outcome: Outcome) -> None:
        if self._life is None:
            return
        if 400 <= outcome.code < 500 and outcome.code not in (404, 409, 429):
            self._record(StageEvent("Warning", FAILED, f"stage {stage}: {outcome.said}"))
        if outcome.body:
            # A watch would bring it; a node has none of its Node.
            self.seen_node(msgspec.json.decode(outcome.body))
        is_lost = outcome.code in (0, 429) or outcome.code >= 500
        self._arm(self._life.played(self._host.clock.now(), self._host.clock.wall(), is_lost=is_lost))

    async def _read(self) -> None:
        assert self._node.client is not None
        try:
            self.seen_node(await self._node.client.get("nodes", Key("", self._node.name)))
        except NotFound:
            self._node.node_gone()
        except (ApiError, UnknownOutcome) as error:
            log.warning("node.read_failed", node=self._node.name, reason=str(error))

    def _record(self, event: StageEvent) -> None:
        if self._recorder is None:
            assert self._node.client is not None
            self._recorder = Recorder(
                self._node.client, self._host.clock, self._host.random, component="kubelet", host=self._node.name
            )
            self._node.spawn(self._recorder.run())
        self._recorder.event(
            kind="Node",
            api_version="v1",
            key=Key("", self._node.name),
            uid=self._node.node_uid,
            reason=event.reason,
            message=event.message,
            type=event.type,
        )
