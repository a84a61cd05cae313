"""The pods of one node that stages drive and that have no containers. Pure.

The kubelet admits, counts and unbinds such a pod as any other; its stages decide what happens to it once it
is admitted, its end and its deletion included.
"""

from collections.abc import Callable

import msgspec

from kubelet.effects import Outbox, PlayStage, SetTimer
from kubelet.pod.context import WallTimes
from kubelet.view import KubeletPod, WorkerKey
from services.api.meta import Document, Key
from services.kwok.stages.lifecycle import Draws, Life, operations
from services.kwok.stages.operation import Operation, Outcome, StagePatch
from services.kwok.stages.stage import Stage
from services.kwok.stages.template_functions import Context
from services.kwok.stages.templates import TemplateError

FAILED = "StageFailed"
"""Reason of the Event for a stage that could not be played."""


class StagedPod(msgspec.Struct):
    """A pod that stages drive. `pod_ip`: the address that stages may give it."""

    pod: KubeletPod
    life: Life
    pod_ip: str


class StageManager:
    """The staged pods of a node.

    `read` returns a pod's newest document, `context` the values for templates, without the pod's address.
    """

    def __init__(
        self,
        stages: tuple[Stage, ...],
        *,
        seed: int,
        times: WallTimes,
        context: Callable[[float], Context],
        new_ip: Callable[[KubeletPod], str],
        read: Callable[[Key], Document | None],
        out: Outbox,
    ) -> None:
        self._stages, self._seed, self._times = stages, seed, times
        self._context, self._new_ip, self._read, self._out = context, new_ip, read, out
        self.pods: dict[WorkerKey, StagedPod] = {}

    def replace(self, stages: tuple[Stage, ...], now: float) -> None:
        """Replace the stages of all pods."""
        self._stages = stages
        for key, staged in self.pods.items():
            self._arm(key, staged.life.replace(stages, now, self._wall_s(now)))

    def chooses(self, pod: KubeletPod) -> bool:
        """Whether stages drive this pod at all."""
        document = self._read(pod.metadata.key)
        return document is not None and any(stage.selector.chooses(document) for stage in self._stages)

    def wants(self, pod: KubeletPod, now: float) -> bool:
        """Whether a stage matches a pod that runs in containers."""
        document = self._read(pod.metadata.key)
        return document is not None and any(
            stage.selector.matches(document, self._wall_s(now)) for stage in self._stages
        )

    def took(self, pod: KubeletPod) -> bool:
        """Whether stages of a previous kubelet drove this pod already, or it may not be run any more."""
        status = pod.status
        has_begun = bool(status.start_time or status.pod_ip) or status.phase not in ("", "Pending")
        return (has_begun or pod.metadata.deletion_timestamp is not None) and self.chooses(pod)

    def begin(self, key: WorkerKey, pod: KubeletPod, now: float) -> None:
        """Let the stages drive this pod from now on."""
        # By name, not uid: the luck of a pod is the same in every run of a scenario.
        meta = pod.metadata
        draws = Draws(self._seed, f"Pod/{meta.namespace}/{meta.name}")
        self.pods[key] = StagedPod(pod, Life(self._stages, draws), pod.status.pod_ip or self._new_ip(pod))
        self.on_changed(key, pod, now)

    def on_changed(self, key: WorkerKey, pod: KubeletPod, now: float) -> None:
        """Take the pod's newest state."""
        staged = self.pods[key]
        staged.pod = pod
        if self._out.has_span(key) and pod.status.phase not in ("", "Pending"):
            self._out.end_span(key, "")
        document = self._read(pod.metadata.key)
        if document is not None and document["metadata"].get("uid") == key.uid:
            self._arm(key, staged.life.observe(document, now, self._wall_s(now)))

    def due(self, key: WorkerKey, now: float) -> None:
        """Play the stage whose delay is over."""
        staged = self.pods.get(key)
        turn = staged.life.due(now) if staged is not None else None
        if staged is None or turn is None:
            return
        context = msgspec.structs.replace(self._context(now), pod_ip=staged.pod_ip)
        try:
            wanted = [
                _with_observed_generation(each, staged.pod) for each in operations(turn.stage, turn.document, context)
            ]
        except TemplateError as error:
            self._out.event(staged.pod, FAILED, str(error), "Warning")
            self._arm(key, staged.life.on_played(now, self._wall_s(now)))
            return
        self._out.log("kubelet.stage", staged.pod, key, {"stage": turn.stage.name})
        self._out.effects.append(
            PlayStage(key, staged.pod, turn.stage.name, tuple(wanted), is_immediate=turn.stage.is_immediate)
        )

    def on_played(self, key: WorkerKey, stage: str, outcome: Outcome, now: float) -> None:
        """Take the outcome of a stage."""
        staged = self.pods.get(key)
        if staged is None:
            return
        if outcome.is_refused:
            self._out.event(staged.pod, FAILED, f"stage {stage}: {outcome.said}", "Warning")
        self._arm(key, staged.life.on_played(now, self._wall_s(now), is_lost=outcome.is_lost))

    def forget(self, key: WorkerKey) -> KubeletPod | None:
        """Stop driving the pod by stages; return the pod, or None if it was not driven."""
        staged = self.pods.pop(key, None)
        return staged.pod if staged is not None else None

    @property
    def running(self) -> int:
        """The number of staged pods in phase Running."""
        return sum(staged.pod.status.phase == "Running" for staged in self.pods.values())

    def _arm(self, key: WorkerKey, due_s: float | None) -> None:
        if due_s is not None:
            self._out.effects.append(SetTimer(due_s, "stage", key))

    def _wall_s(self, now: float) -> float:
        return now + self._times.offset_s


def _with_observed_generation(operation: Operation, pod: KubeletPod) -> Operation:
    """Name in a status the generation of its spec: the API server refuses a status of an earlier binding."""
    if not isinstance(operation, StagePatch) or operation.subresource != "status" or operation.type == "json":
        return operation
    status = operation.body.get("status")
    if not isinstance(status, dict):
        return operation
    generation = status.get("observedGeneration")
    seen = max(generation if isinstance(generation, int) else 0, pod.metadata.generation)
    return StagePatch(operation.type, "status", {**operation.body, "status": {**status, "observedGeneration": seen}})
