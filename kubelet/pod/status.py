"""A pod as its node sees it, and the status that says so: phase, conditions, containers. Pure.

What moves a pod is the worker's affair; here is only what is told of where it has come to.
Source: kubelet 3.3 and 3.4.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kubelet.pod.actuation import level_of, requirements
from kubelet.runtime.fake_cri import EPHEMERAL, INIT, MAIN, SIDECAR, Container, Ended
from kubelet.runtime.resources import PodResources, resources_of
from kubelet.view import KubeletPod, WorkerKey
from services.api.meta import Document
from services.api.times import format_time

STATUS_UNKNOWN = "ContainerStatusUnknown"
_BETWEEN_RUNS = ("backoff", "image", "pulling", "stuck", "devices", "create")
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


RESIZE_PENDING, RESIZE_IN_PROGRESS = "PodResizePending", "PodResizeInProgress"


class PodStatus:
    """What the status of one (uid, binding generation) is made of.

    `state`: held (a predecessor of the same name or uid still runs), starting, running, terminating,
    stopped (record not durable yet), terminated. `allocated` is what the node has promised, `actual` what the
    runtime was told of it; they are one object as long as no resize is under way (KEP-1287).
    """

    __slots__ = (
        "_times", "actual", "allocated", "conditions", "containers", "device_health", "generation", "has_ip", "host_ip",
        "key", "pod", "pod_ip", "pre_start", "started_s", "state", "termination",
    )  # fmt: skip

    def __init__(
        self, pod: KubeletPod, key: WorkerKey, *, host_ip: str, pod_ip: str, times: WallTimes, now: float
    ) -> None:
        self.pod, self.key = pod, key
        self.host_ip, self.pod_ip = host_ip, pod_ip
        self.started_s = now
        self.state = "starting"
        self.termination: Termination | None = None
        self.has_ip = False
        self.conditions: dict[str, Condition] = {}
        self.generation = pod.metadata.generation
        self.containers: list[Container] = []
        self.allocated: PodResources = resources_of(pod)
        self.actual: PodResources = self.allocated
        self.pre_start: frozenset[str] = _NO_CONTAINERS
        """Containers whose devices a plugin prepares before every start."""
        self.device_health: dict[str, list[Document]] = _NO_HEALTH
        """What is told of containers' devices (KEP-4680)."""
        self._times = times

    @property
    def phase(self) -> str:
        """Pending, Running, Succeeded or Failed (kubelet 3.3); terminal only once terminated."""
        if self.state == "terminated":
            mains = [c for c in self.containers if c.kind == MAIN]
            if self.termination is not None and self.termination.reason:
                return "Failed"
            done = all(c.state == "exited" and c.exit_code == 0 for c in mains)
            return "Succeeded" if done else "Failed"
        for container in self.containers:
            if container.kind == MAIN and container.was_seen:
                return "Running"
        return "Pending"

    @property
    def is_initialized(self) -> bool:
        """Whether every init container has done its part."""
        inits = [c for c in self.containers if c.kind in (INIT, SIDECAR)]
        return not inits or all(
            (c.state == "exited" and c.exit_code == 0)
            if c.kind == INIT
            else c.was_seen and (c.probes is None or c.probes.is_started or self._has_begun)
            for c in inits
        )

    @property
    def _has_begun(self) -> bool:
        return any(c.kind == MAIN and c.has_run for c in self.containers)

    def refresh(self, t: float) -> None:
        """Bring the conditions up to date at `t`; transition times are those of real transitions."""
        self._condition(t, "PodReadyToStartContainers", self.has_ip and self.state != "terminated")
        phase = self.phase
        terminal = "PodCompleted" if phase == "Succeeded" else "PodFailed" if phase == "Failed" else ""
        initialized = self.is_initialized and self.has_ip
        if initialized:
            self._condition(t, "Initialized", True, "PodCompleted" if phase == "Succeeded" else "")
        else:
            missing = [
                c.name for c in self.containers
                if c.kind in (INIT, SIDECAR)
                and not (c.has_run and c.state != "backoff" and (c.is_started or not c.is_running))
            ]  # fmt: skip
            self._condition(
                t, "Initialized", False, "ContainersNotInitialized",
                f"containers with incomplete status: [{' '.join(missing)}]",
            )  # fmt: skip
        if terminal:
            for kind in ("ContainersReady", "Ready"):
                self._condition(t, kind, False, terminal)
            return
        unready = [c.name for c in self.containers if c.kind in (MAIN, SIDECAR) and not c.is_ready]
        why, text = "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
        self._condition(t, "ContainersReady", not unready, why if unready else "", text if unready else "")
        gates = self._closed_gates() if self.pod.spec.readiness_gates else []
        if not unready and gates:
            why, text = "ReadinessGatesNotReady", ", ".join(gates)
        is_ready = not unready and not gates
        self._condition(t, "Ready", is_ready, "" if is_ready else why, "" if is_ready else text)

    def _closed_gates(self) -> list[str]:
        """Return what is wrong with each readiness gate that is not met (KEP-580)."""
        held = {c.type: c.status for c in self.pod.status.conditions}
        found: list[str] = []
        for gate in self.pod.spec.readiness_gates:
            what = f'corresponding condition of pod readiness gate "{gate.condition_type}" '
            if gate.condition_type not in held:
                found.append(f"{what}does not exist.")
            elif held[gate.condition_type] != "True":
                found.append(f"the status of pod readiness gate \"{gate.condition_type}\" is not \"True\", but "
                             f"{held[gate.condition_type]}")  # fmt: skip
        return found

    def _condition(self, t: float, kind: str, is_true: bool, reason: str = "", message: str = "") -> None:
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

    def render(self) -> Document:
        """Return the status fields a kubelet owns, as they are now."""
        phase = self.phase
        status: Document = {
            "phase": phase,
            "observedGeneration": self.generation,
            "hostIP": self.host_ip,
            "hostIPs": [{"ip": self.host_ip}],
            "startTime": self._times.text(self.started_s),
            "conditions": self._render_conditions(phase),
        }
        if self.has_ip and self.pod_ip:
            status["podIP"] = self.pod_ip
            status["podIPs"] = [{"ip": self.pod_ip}]
        inits = [self._render_container(c) for c in self.containers if c.kind in (INIT, SIDECAR)]
        if inits:
            status["initContainerStatuses"] = inits
        status["containerStatuses"] = [self._render_container(c) for c in self.containers if c.kind == MAIN]
        if guests := [self._render_container(c) for c in self.containers if c.kind == EPHEMERAL]:
            status["ephemeralContainerStatuses"] = guests
        if self.allocated.level is not None:
            status["allocatedResources"] = level_of(self.allocated).requests
            status["resources"] = requirements(level_of(self.actual))
        if self.termination is not None and phase == "Failed" and self.termination.reason:
            status["reason"] = self.termination.reason
            status["message"] = self.termination.message
        return status

    def _render_conditions(self, phase: str) -> list[Document]:
        listed: list[Document] = []
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"):
            listed.append(self.condition_document(kind, self.conditions[kind]))
        for kind in (RESIZE_PENDING, RESIZE_IN_PROGRESS):
            if kind in self.conditions:
                listed.append(self.condition_document(kind, self.conditions[kind]))
        if not any(c.type == "PodScheduled" for c in self.pod.status.conditions):
            since = self._times.text(self.started_s)
            listed.append(self.condition_document("PodScheduled", Condition("True", since)))
        if self.termination is not None and self.termination.is_disruption and phase in ("Succeeded", "Failed"):
            since = self.conditions["Ready"].since
            listed.append(
                self.condition_document(
                    "DisruptionTarget", Condition("True", since, "TerminationByKubelet", self.termination.message)
                )
            )
        return listed

    def condition_document(self, kind: str, condition: Condition) -> Document:
        """Return a condition as it is written."""
        made: Document = {"type": kind, "status": condition.status}
        if condition.since:  # a condition of another writer may lack it, and "" is no time
            made["lastTransitionTime"] = condition.since
        made["observedGeneration"] = condition.generation or self.generation
        if condition.reason:
            made["reason"] = condition.reason
        if condition.message:
            made["message"] = condition.message
        return made

    def _render_container(self, container: Container) -> Document:
        state: dict[str, Any]
        match container.state:
            case "running" if container.is_seen:
                state = {"running": {"startedAt": self._times.text(container.started_s)}}
            case "exited" if container.ended is not None:
                state = {"terminated": _ended(container.ended)}
            case "backoff" | "stuck":
                state = {"waiting": {"reason": container.waiting_reason, "message": container.waiting_message}}
            case _:
                state = {"waiting": {"reason": self.waiting_reason(container)}}
        if "waiting" in state and self.state == "terminated" and container.kind == MAIN and self.is_initialized:
            # TerminatePod: what was never seen to end is reported as unknown (kubelet 3.4).
            text = "The container could not be located when the pod was terminated"
            state = {"terminated": {"exitCode": 137, "reason": STATUS_UNKNOWN, "message": text,
                                    "startedAt": None, "finishedAt": None}}  # fmt: skip
        last = container.ended if container.state in _BETWEEN_RUNS else container.last
        made: Document = {
            "name": container.name,
            "state": state,
            "lastState": {"terminated": _ended(last)} if last is not None else {},
            "ready": container.is_ready or (container.kind == INIT and _is_done(container)),
            "restartCount": container.restarts,
            "image": container.image,
            "imageID": "",
            "started": container.is_started,
        }
        if (size := self.allocated.containers.get(container.name)) is not None:
            if size.requests:
                made["allocatedResources"] = size.requests
            made["resources"] = requirements(self.actual.of(container.name) if container.is_running else size)
        if self.device_health and (told := self.device_health.get(container.name)):
            made["allocatedResourcesStatus"] = told
        if container.was_seen:
            made["containerID"] = f"keplab://{self.key.uid}/{container.name}/{container.restarts}"
        return made

    def waiting_reason(self, container: Container) -> str:
        """Return why a container does not run yet, as its status says it."""
        if container.state in ("backoff", "stuck"):
            return container.waiting_reason
        if container.ended is not None:
            return container.waiting_reason or "ContainerCreating"
        has_init = any(c.kind in (INIT, SIDECAR) for c in self.containers)
        return "PodInitializing" if has_init and (container.kind == MAIN or self.has_ip) else "ContainerCreating"


def _is_done(container: Container) -> bool:
    return container.state == "exited" and container.exit_code == 0


def _ended(ended: Ended) -> Document:
    return {
        "exitCode": ended.exit_code,
        "reason": ended.reason,
        "startedAt": ended.started_at,
        "finishedAt": ended.finished_at,
    }
