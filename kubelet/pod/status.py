"""The status of a pod as its node sees it: phase, conditions, containers. Pure.

Source: kubelet 3.3 and 3.4.
"""

from __future__ import annotations

from typing import Any

from kubelet.pod.actuation import level_of, requirements
from kubelet.pod.container import EPHEMERAL, INIT, MAIN, SIDECAR, Container, Ended
from kubelet.pod.context import RESIZE_IN_PROGRESS, RESIZE_PENDING, Condition, PodContext
from kubelet.pod.states import ContainerState, PodState
from services.api.meta import Document

STATUS_UNKNOWN = "ContainerStatusUnknown"
_C = ContainerState
_BETWEEN_RUNS = (_C.BACKOFF, _C.IMAGE, _C.PULLING, _C.STUCK, _C.DEVICES, _C.CREATE)


class Status:
    """What the status of one pod is made of."""

    __slots__ = ("_pod",)

    def __init__(self, pod: PodContext) -> None:
        self._pod = pod

    @property
    def phase(self) -> str:
        """Pending, Running, Succeeded or Failed (kubelet 3.3); terminal only once terminated."""
        if self._pod.state == PodState.TERMINATED:
            mains = [c for c in self._pod.containers if c.kind == MAIN]
            if self._pod.termination is not None and self._pod.termination.reason:
                return "Failed"
            done = all(c.state == _C.EXITED and c.exit_code == 0 for c in mains)
            return "Succeeded" if done else "Failed"
        for container in self._pod.containers:
            if container.kind == MAIN and container.was_seen:
                return "Running"
        return "Pending"

    @property
    def is_initialized(self) -> bool:
        """Whether every init container has done its part."""
        inits = [c for c in self._pod.containers if c.kind in (INIT, SIDECAR)]
        return not inits or all(
            (c.state == _C.EXITED and c.exit_code == 0)
            if c.kind == INIT
            else c.was_seen and (c.probes is None or c.probes.is_started or self._has_begun)
            for c in inits
        )

    @property
    def _has_begun(self) -> bool:
        return any(c.kind == MAIN and c.has_run for c in self._pod.containers)

    def refresh(self, t: float) -> None:
        """Bring the conditions up to date at `t`; transition times are those of real transitions."""
        self._pod.set_condition(
            t, "PodReadyToStartContainers", self._pod.has_ip and self._pod.state != PodState.TERMINATED
        )
        phase = self.phase
        terminal = "PodCompleted" if phase == "Succeeded" else "PodFailed" if phase == "Failed" else ""
        initialized = self.is_initialized and self._pod.has_ip
        if initialized:
            self._pod.set_condition(t, "Initialized", True, "PodCompleted" if phase == "Succeeded" else "")
        else:
            missing = [
                c.name
                for c in self._pod.containers
                if c.kind in (INIT, SIDECAR)
                and not (c.has_run and c.state != _C.BACKOFF and (c.is_started or not c.is_running))
            ]
            self._pod.set_condition(
                t,
                "Initialized",
                False,
                "ContainersNotInitialized",
                f"containers with incomplete status: [{' '.join(missing)}]",
            )
        if terminal:
            for kind in ("ContainersReady", "Ready"):
                self._pod.set_condition(t, kind, False, terminal)
            return
        unready = [c.name for c in self._pod.containers if c.kind in (MAIN, SIDECAR) and not c.is_ready]
        why, text = "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
        self._pod.set_condition(t, "ContainersReady", not unready, why if unready else "", text if unready else "")
        gates = self._closed_gates() if self._pod.pod.spec.readiness_gates else []
        if not unready and gates:
            why, text = "ReadinessGatesNotReady", ", ".join(gates)
        is_ready = not unready and not gates
        self._pod.set_condition(t, "Ready", is_ready, "" if is_ready else why, "" if is_ready else text)

    def _closed_gates(self) -> list[str]:
        """Return what is wrong with each readiness gate that is not met (KEP-580)."""
        held = {c.type: c.status for c in self._pod.pod.status.conditions}
        found: list[str] = []
        for gate in self._pod.pod.spec.readiness_gates:
            what = f'corresponding condition of pod readiness gate "{gate.condition_type}" '
            if gate.condition_type not in held:
                found.append(f"{what}does not exist.")
            elif held[gate.condition_type] != "True":
                found.append(
                    f'the status of pod readiness gate "{gate.condition_type}" is not "True", but '
                    f"{held[gate.condition_type]}"
                )
        return found

    def render(self) -> Document:
        """Return the status fields a kubelet owns, as they are now."""
        phase = self.phase
        status: Document = {
            "phase": phase,
            "observedGeneration": self._pod.generation,
            "hostIP": self._pod.host_ip,
            "hostIPs": [{"ip": self._pod.host_ip}],
            "startTime": self._pod.time_text(self._pod.started_s),
            "conditions": self._render_conditions(phase),
        }
        if self._pod.has_ip and self._pod.pod_ip:
            status["podIP"] = self._pod.pod_ip
            status["podIPs"] = [{"ip": self._pod.pod_ip}]
        inits = [self._render_container(c) for c in self._pod.containers if c.kind in (INIT, SIDECAR)]
        if inits:
            status["initContainerStatuses"] = inits
        status["containerStatuses"] = [self._render_container(c) for c in self._pod.containers if c.kind == MAIN]
        if ephemerals := [self._render_container(c) for c in self._pod.containers if c.kind == EPHEMERAL]:
            status["ephemeralContainerStatuses"] = ephemerals
        if self._pod.allocated.level is not None:
            status["allocatedResources"] = level_of(self._pod.allocated).requests
            status["resources"] = requirements(level_of(self._pod.actual))
        if self._pod.termination is not None and phase == "Failed" and self._pod.termination.reason:
            status["reason"] = self._pod.termination.reason
            status["message"] = self._pod.termination.message
        return status

    def _render_conditions(self, phase: str) -> list[Document]:
        listed: list[Document] = []
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"):
            listed.append(condition_document(self._pod, kind, self._pod.conditions[kind]))
        for kind in (RESIZE_PENDING, RESIZE_IN_PROGRESS):
            if kind in self._pod.conditions:
                listed.append(condition_document(self._pod, kind, self._pod.conditions[kind]))
        if not any(c.type == "PodScheduled" for c in self._pod.pod.status.conditions):
            since = self._pod.time_text(self._pod.started_s)
            listed.append(condition_document(self._pod, "PodScheduled", Condition("True", since)))
        if (
            self._pod.termination is not None
            and self._pod.termination.is_disruption
            and phase in ("Succeeded", "Failed")
        ):
            since = self._pod.conditions["Ready"].since
            listed.append(
                condition_document(
                    self._pod,
                    "DisruptionTarget",
                    Condition("True", since, "TerminationByKubelet", self._pod.termination.message),
                )
            )
        return listed

    def _render_container(self, container: Container) -> Document:
        state: dict[str, Any]
        match container.state:
            case _C.RUNNING if container.is_seen:
                state = {"running": {"startedAt": self._pod.time_text(container.started_s)}}
            case _C.EXITED if container.ended is not None:
                state = {"terminated": _ended(container.ended)}
            case _C.BACKOFF | _C.STUCK:
                state = {"waiting": {"reason": container.waiting_reason, "message": container.waiting_message}}
            case _:
                state = {"waiting": {"reason": self.waiting_reason(container)}}
        if (
            "waiting" in state
            and self._pod.state == PodState.TERMINATED
            and container.kind == MAIN
            and self.is_initialized
        ):
            # TerminatePod: what was never seen to end is reported as unknown (kubelet 3.4).
            text = "The container could not be located when the pod was terminated"
            state = {
                "terminated": {
                    "exitCode": 137,
                    "reason": STATUS_UNKNOWN,
                    "message": text,
                    "startedAt": None,
                    "finishedAt": None,
                }
            }
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
        if (size := self._pod.allocated.containers.get(container.name)) is not None:
            if size.requests:
                made["allocatedResources"] = size.requests
            made["resources"] = requirements(self._pod.actual.of(container.name) if container.is_running else size)
        if self._pod.device_health and (health := self._pod.device_health.get(container.name)):
            made["allocatedResourcesStatus"] = health
        if container.was_seen:
            made["containerID"] = f"keplab://{self._pod.key.uid}/{container.name}/{container.restarts}"
        return made

    def waiting_reason(self, container: Container) -> str:
        """Return why a container does not run yet, as its status says it."""
        if container.state in (_C.BACKOFF, _C.STUCK):
            return container.waiting_reason
        if container.ended is not None:
            return container.waiting_reason or "ContainerCreating"
        has_init = any(c.kind in (INIT, SIDECAR) for c in self._pod.containers)
        return "PodInitializing" if has_init and (container.kind == MAIN or self._pod.has_ip) else "ContainerCreating"


def _is_done(container: Container) -> bool:
    return container.state == _C.EXITED and container.exit_code == 0


def _ended(ended: Ended) -> Document:
    return {
        "exitCode": ended.exit_code,
        "reason": ended.reason,
        "startedAt": ended.started_at,
        "finishedAt": ended.finished_at,
    }


def condition_document(pod: PodContext, kind: str, condition: Condition) -> Document:
    """Return a condition as it is written."""
    made: Document = {"type": kind, "status": condition.status}
    if condition.since:  # a condition of another writer may lack it, and "" is no time
        made["lastTransitionTime"] = condition.since
    made["observedGeneration"] = condition.generation or pod.generation
    if condition.reason:
        made["reason"] = condition.reason
    if condition.message:
        made["message"] = condition.message
    return made
