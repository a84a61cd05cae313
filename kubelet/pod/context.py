"""The state that the parts of one pod share: its facts, its effects, its random draws. Pure.

The parts of a pod (`startup`, `images`, `lifecycle`, `restarts`, `resize`, `status`) share this and nothing
else; a part knows another only by what its caller passes in.
"""

from dataclasses import dataclass, field
from typing import Final

import msgspec

from kubelet.effects import Effect, RecordEvent, Save, SpanStage
from kubelet.managers.allocation import Allocation
from kubelet.pod.container import Container
from kubelet.pod.states import POD_TRANSITIONS, ContainerState, IllegalTransition, PodState
from kubelet.runtime.claims import HeldClaim
from kubelet.runtime.images import NodeImages
from kubelet.runtime.latency import LatencyModel, PodLatency
from kubelet.runtime.pleg import AT_ONCE, Pleg
from kubelet.runtime.records import LOST_EXIT, ContainerRecord, PodRecord, lines_of
from kubelet.runtime.resources import PodResources, resources_of
from kubelet.runtime.script import StartFaults
from kubelet.runtime.volumes import NodeVolumes
from kubelet.view import KubeletPod, WorkerKey
from services.api.meta import Document
from services.api.times import format_time

RESIZE_PENDING, RESIZE_IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
CRASHLOOP_S: Final = (10.0, 300.0)
"""First and longest crash-loop back-off, in seconds."""
SYNC_S: Final = 10.0
"""Seconds from a failed sync to the next."""


class WallTimes:
    """Converts monotonic times to wall-clock text; the shell keeps `offset_s` right."""

    def __init__(self, offset_s: float = 0.0) -> None:
        self.offset_s = offset_s
        self._second, self._text = -1, ""

    def text(self, at_s: float) -> str:
        """Return the time in RFC 3339, in whole seconds."""
        second = int(at_s + self.offset_s)
        if second != self._second:
            self._second, self._text = second, format_time(second)
        return self._text


class Policy(msgspec.Struct, frozen=True):
    """The settings for all pods of a node. Seconds."""

    crashloop_initial_s: float = CRASHLOOP_S[0]
    crashloop_max_s: float = CRASHLOOP_S[1]
    start_fence: bool = False
    """Whether containers wait until a status with `startTime` is acknowledged."""
    completion_s: float = 0.0
    """Seconds after which a container with an unknown command ends, in a pod that is to end; 0: it runs on."""
    resizes_init_containers: bool = False
    """Whether init containers that are not sidecars may be resized."""


@dataclass(slots=True)
class NodeRuntime:
    """The parts that the pods of one node share: addresses, settings, and the emulated runtime."""

    name: str
    host_ip: str
    latency: LatencyModel
    policy: Policy
    times: WallTimes
    pleg: Pleg = AT_ONCE
    """The delay with which the node notices changes of containers."""
    faults: StartFaults = field(default_factory=StartFaults)
    """The faults of every start."""
    images: NodeImages = field(default_factory=NodeImages)
    volumes: NodeVolumes = field(default_factory=NodeVolumes)


class Termination(msgspec.Struct):
    """The cause and the deadline of a pod's termination.

    `reason` and `message` go into the final status; `is_disruption`: publish DisruptionTarget with it.
    """

    cause: str
    kill_at_s: float
    reason: str = ""
    message: str = ""
    is_disruption: bool = False


class Condition(msgspec.Struct):
    """A condition and the time of its last transition (RFC 3339).

    `generation`: of the spec it refers to; 0: the newest.
    """

    status: str
    since: str
    reason: str = ""
    message: str = ""
    generation: int = 0


@dataclass(slots=True, eq=False)
class PodContext:
    """The facts of one (uid, binding generation), and its effects in order."""

    pod: KubeletPod
    key: WorkerKey
    node: NodeRuntime
    pod_ip: str
    allocation: Allocation
    """The CPUs, memory and devices that belong to the pod alone."""
    started_s: float
    state: PodState = PodState.STARTING
    termination: Termination | None = None
    containers: list[Container] = field(default_factory=list)
    ever_started: bool = False
    """Whether a container ran, so that there is a record to take back."""
    has_ip: bool = False
    """Whether the sandbox exists."""
    conditions: dict[str, Condition] = field(default_factory=dict)
    claims: tuple[HeldClaim, ...] = ()
    """Claims whose devices are, or may be, prepared for the pod (KEP-4381)."""
    pre_start: frozenset[str] = frozenset()
    """Containers whose devices a plugin prepares before every start."""
    device_health: dict[str, list[Document]] = field(default_factory=dict)
    """The health of plugins' devices in the status of containers, by container (KEP-4680)."""
    claim_health: dict[str, list[Document]] = field(default_factory=dict)
    """The health of claims' devices in the status of containers, by container (KEP-4680)."""
    measured_for: PodResources | None = None
    """The size for which the times of excessive memory use were computed; None: to be computed anew."""
    effects: list[Effect] = field(default_factory=list)
    saved_seq: int = 0
    durable_seq: int = 0
    """The number of the newest durable record; `saved_seq` is that of the newest record."""
    latency: PodLatency = field(init=False)
    generation: int = field(init=False)
    allocated: PodResources = field(init=False)
    """The size that the node has allocated (KEP-1287)."""
    actual: PodResources = field(init=False)
    """The size that the runtime applied; the same object as `allocated` unless a resize is under way."""

    def __post_init__(self) -> None:
        self.latency = self.node.latency.for_pod(self.node.name, self.key.uid)
        self.generation = self.pod.metadata.generation
        self.allocated = self.actual = self.desired_resources(self.pod)

    def desired_resources(self, pod: KubeletPod) -> PodResources:
        """Return the size that a version of the pod requests, as far as this node can resize it."""
        return resources_of(pod, with_init_containers=self.node.policy.resizes_init_containers)

    def become(self, state: PodState) -> None:
        """Change the state. Raises: IllegalTransition."""
        if state not in POD_TRANSITIONS[self.state]:
            raise IllegalTransition(f"pod {self.pod.metadata.key}: {self.state.name} -> {state.name}")
        self.state = state

    def event(self, reason: str, message: str, event_type: str = "Normal", of: Container | None = None) -> None:
        """Record an Event about the pod, or about its container `of`."""
        field_path = of.field_path if of is not None else ""
        self.effects.append(RecordEvent(self.pod, reason, message, event_type, field_path))

    def reach(self, stage: str) -> None:
        """Mark the end of a stage of the start, for the trace."""
        self.effects.append(SpanStage(self.key, stage))

    def save(self) -> None:
        """Make the present record durable; `durable_seq` follows."""
        self.saved_seq += 1
        self.effects.append(Save(self.key, self.saved_seq, lines_of(self.record())))

    def record(self) -> PodRecord:
        """Return the record that must survive this process."""
        return PodRecord(
            self.node.name,
            self.key.uid,
            self.key.generation,
            self.pod.metadata.namespace,
            self.pod.metadata.name,
            self.pod_ip,
            self.started_s,
            [_record_of(c) for c in self.containers if c.has_run or c.state == ContainerState.RECORDING],
            self.allocation,
            self.allocated,
            None if self.actual is self.allocated else self.actual,
            self.state in (PodState.STOPPED, PodState.TERMINATED),
            claims=self.claims,
        )

    def draw(self, stage: str, container: Container) -> float:
        """Return how long a stage takes for this container; draws differ by container and by restart."""
        place = self.containers.index(container)
        return self.latency.of(stage, place + len(self.containers) * container.created_total)

    def stop_container(self, container: Container, t: float, grace_s: float) -> None:
        """Stop a container within the grace period."""
        container.stop(t, t + grace_s, grace_s, self.draw("stop", container))

    def time_text(self, at_s: float) -> str:
        """Return the time as wall-clock text."""
        return self.node.times.text(at_s)

    def set_condition(self, t: float, kind: str, is_true: bool, reason: str = "", message: str = "") -> None:
        """Set a condition; its time is that of the last real transition."""
        status = "True" if is_true else "False"
        held = self.conditions.get(kind)
        if held is None or held.status != status:
            self.conditions[kind] = Condition(status, self.node.times.text(t), reason, message)
        elif held.reason != reason or held.message != message:
            held.reason, held.message = reason, message

    def set_resize_condition(self, t: float, kind: str, reason: str, message: str, generation: int) -> bool:
        """Set PodResizePending or PodResizeInProgress; return whether the condition changed.

        Its time stays while the condition stands.
        """
        held = self.conditions.get(kind)
        since = self.node.times.text(t) if held is None else held.since
        now = self.conditions[kind] = Condition("True", since, reason, message, generation)
        return held != now


def _record_of(container: Container) -> ContainerRecord:
    runs = container.state in (ContainerState.RUNNING, ContainerState.RECORDING)
    is_lost = container.exit_code == LOST_EXIT and not runs
    made = ContainerRecord(container.name, container.started_s, container.restarts)
    if container.ended is not None and (container.state == ContainerState.EXITED or is_lost):
        made.exit_code, made.finished_s = container.exit_code, container.finished_s
    return made
