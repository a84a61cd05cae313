"""What is known of one pod on its node, and what its parts have it do: facts, effects, luck. Pure.

The parts of a pod (`Startup`, `Images`, `Hooks`, `Probes`, `Restarts`, `Memory`, `Resize`, `Status`) share this and
nothing else; none knows another but by what its caller hands it.
"""

from __future__ import annotations

import msgspec

from kubelet.effects import Effect, RecordEvent, Save, SpanStage
from kubelet.managers.allocation import Allocation
from kubelet.pod.container import Container
from kubelet.pod.states import POD_TRANSITIONS, ContainerState, IllegalTransition, PodState
from kubelet.runtime.checkpoint import lines_of
from kubelet.runtime.claim_record import HeldClaim
from kubelet.runtime.latency import PodLatency
from kubelet.runtime.records import PodRecord
from kubelet.runtime.resources import PodResources, resources_of
from kubelet.view import KubeletPod, WorkerKey
from services.api.meta import Document
from services.api.times import format_time

RESIZE_PENDING, RESIZE_IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
_NO_CONTAINERS: frozenset[str] = frozenset()
_NO_HEALTH: dict[str, list[Document]] = {}


class WallTimes:
    """Spells monotonic moments as wall-clock text; the shell keeps `offset_s` right."""

    def __init__(self, offset_s: float = 0.0) -> None:
        self.offset_s = offset_s
        self._second, self._text = -1, ""

    def text(self, at_s: float) -> str:
        """Return whole seconds in RFC 3339."""
        second = int(at_s + self.offset_s)
        if second != self._second:
            self._second, self._text = second, format_time(second)
        return self._text


class Termination(msgspec.Struct):
    """Why and until when a pod is being stopped. `reason` and `message` go into the final status.

    `is_disruption`: publish DisruptionTarget together with the terminal phase.
    """

    cause: str
    kill_at_s: float
    reason: str = ""
    message: str = ""
    is_disruption: bool = False


class Condition(msgspec.Struct):
    """A condition as it stands, and since when (RFC 3339). `generation`: of the spec it speaks of; 0: the newest."""

    status: str
    since: str
    reason: str = ""
    message: str = ""
    generation: int = 0


class PodContext:
    """The facts of one (uid, binding generation), and its effects in order."""

    __slots__ = (
        "_times",
        "actual",
        "allocated",
        "allocation",
        "claims",
        "conditions",
        "containers",
        "device_health",
        "durable_seq",
        "effects",
        "ever_started",
        "generation",
        "has_ip",
        "host_ip",
        "key",
        "latency",
        "node",
        "pod",
        "pod_ip",
        "pre_start",
        "saved_seq",
        "started_s",
        "state",
        "termination",
    )

    def __init__(
        self,
        pod: KubeletPod,
        key: WorkerKey,
        *,
        node: str,
        host_ip: str,
        pod_ip: str,
        allocation: Allocation,
        latency: PodLatency,
        times: WallTimes,
        now: float,
    ) -> None:
        self.pod, self.key, self.node = pod, key, node
        self.host_ip, self.pod_ip = host_ip, pod_ip
        self.latency, self._times = latency, times
        self.started_s = now
        self.state = PodState.STARTING
        self.termination: Termination | None = None
        self.containers: list[Container] = []
        self.ever_started = False
        """Whether a container ran, so that there is a record to take back."""
        self.has_ip = False
        """Whether the sandbox is there."""
        self.conditions: dict[str, Condition] = {}
        self.generation = pod.metadata.generation
        self.allocation = allocation
        """The CPUs, memory and devices that are the pod's alone."""
        self.allocated: PodResources = resources_of(pod)
        """The size that the node has allocated (KEP-1287)."""
        self.actual: PodResources = self.allocated
        """The size that the runtime applied; the same object as `allocated` unless a resize is under way."""
        self.claims: tuple[HeldClaim, ...] = ()
        """Claims whose devices are, or may be, prepared for the pod (KEP-4381)."""
        self.pre_start: frozenset[str] = _NO_CONTAINERS
        """Containers whose devices a plugin prepares before every start."""
        self.device_health: dict[str, list[Document]] = _NO_HEALTH
        """What the status of containers says of their devices (KEP-4680)."""
        self.effects: list[Effect] = []
        self.saved_seq = self.durable_seq = 0
        """The newest record, and the newest that is durable."""

    def become(self, state: PodState) -> None:
        """Change the state. Raises: IllegalTransition."""
        if state not in POD_TRANSITIONS[self.state]:
            raise IllegalTransition(f"pod {self.pod.metadata.key}: {self.state.name} -> {state.name}")
        self.state = state

    # --- what is done ---

    def event(self, reason: str, message: str, event_type: str = "Normal") -> None:
        """Record an Event about the pod."""
        self.effects.append(RecordEvent(self.pod, reason, message, event_type))

    def reach(self, stage: str) -> None:
        """A stage of the start is over, for the trace."""
        self.effects.append(SpanStage(self.key, stage))

    def save(self) -> None:
        """Have the record as it is now made durable; `durable_seq` follows."""
        self.saved_seq += 1
        self.effects.append(Save(self.key, self.saved_seq, lines_of(self.record())))

    def record(self) -> PodRecord:
        """Return what must survive this process."""
        return PodRecord(
            self.node,
            self.key.uid,
            self.key.generation,
            self.pod.metadata.namespace,
            self.pod.metadata.name,
            self.pod_ip,
            self.started_s,
            [c.record() for c in self.containers if c.has_run or c.state == ContainerState.RECORDING],
            self.allocation,
            self.allocated,
            None if self.actual is self.allocated else self.actual,
            self.state in (PodState.STOPPED, PodState.TERMINATED),
            claims=self.claims,
        )

    def draw(self, stage: str, container: Container) -> float:
        """Return how long a stage takes this container: apart from others, a restart apart from a first start."""
        place = self.containers.index(container)
        return self.latency.of(stage, place + len(self.containers) * container.created_total)

    def stop_container(self, container: Container, t: float, grace_s: float) -> None:
        """End a container within so long."""
        container.stop(t, t + grace_s, grace_s, self.draw("stop", container))

    # --- what is said of it ---

    def time_text(self, at_s: float) -> str:
        """Spell a moment as wall-clock text."""
        return self._times.text(at_s)

    def set_condition(self, t: float, kind: str, is_true: bool, reason: str = "", message: str = "") -> None:
        """Set a condition; its time is that of the last real transition."""
        status = "True" if is_true else "False"
        held = self.conditions.get(kind)
        if held is None or held.status != status:
            self.conditions[kind] = Condition(status, self._times.text(t), reason, message)
        elif held.reason != reason or held.message != message:
            held.reason, held.message = reason, message

    def set_resize_condition(self, t: float, kind: str, reason: str, message: str, generation: int) -> bool:
        """Set PodResizePending or PodResizeInProgress; its time stays while it stands. Return whether it changed."""
        held = self.conditions.get(kind)
        since = self._times.text(t) if held is None else held.since
        now = Condition("True", since, reason, message, generation)
        self.conditions[kind] = now
        return held != now
