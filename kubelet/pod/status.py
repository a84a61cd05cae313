"""The status of a pod as its node sees it: phase, conditions, containers. Pure.

Source: kubelet 3.3 and 3.4; upstream `pkg/kubelet/status/generate.go`.
"""

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from typing import Any

import msgspec

from kubelet.pod.actuation import level_of, requirements
from kubelet.pod.container import EPHEMERAL, INIT, MAIN, SIDECAR, Container
from kubelet.pod.context import RESIZE_IN_PROGRESS, RESIZE_PENDING, Condition, PodContext
from kubelet.pod.states import ContainerState, PodState
from services.api.meta import Document

_CONDITIONS = (
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    RESIZE_PENDING,
    RESIZE_IN_PROGRESS,
)
"""The pod's conditions, in the order in which they are written."""
_C = ContainerState
_BETWEEN_RUNS = (_C.BACKOFF, _C.IMAGE, _C.PULLING, _C.STUCK, _C.DEVICES, _C.CONFIG, _C.CREATE)


def phase_of(pod: PodContext) -> str:
    """Return Pending, Running, Succeeded or Failed (kubelet 3.3); terminal only once the pod is terminated."""
    if pod.state == PodState.TERMINATED:
        if pod.termination is not None and pod.termination.reason:
            return "Failed"
        return "Succeeded" if all(_is_done(c) for c in pod.containers if c.kind == MAIN) else "Failed"
    for container in pod.containers:
        if container.kind == MAIN and container.was_seen:
            return "Running"
    return "Pending"


def is_initialized(pod: PodContext) -> bool:
    """Whether every init container has completed, or had before, so that a main container was started."""
    if not pod.pod.spec.init_containers:
        return True
    return not _incomplete(pod) or any(c.kind == MAIN and c.was_seen for c in pod.containers)


def _incomplete(pod: PodContext) -> list[str]:
    """Return the init containers that did not end well, and the sidecars that have not come up."""
    return [
        c.name
        for c in pod.containers
        if (c.kind == INIT and not _is_done(c)) or (c.kind == SIDECAR and not c.is_started)
    ]


def refresh(pod: PodContext, t: float) -> None:
    """Bring the conditions up to date at `t`; transition times are those of real transitions."""
    pod.set_condition(t, "PodReadyToStartContainers", pod.has_ip and pod.state != PodState.TERMINATED)
    phase = phase_of(pod)
    terminal = "PodCompleted" if phase == "Succeeded" else "PodFailed" if phase == "Failed" else ""
    if phase == "Succeeded" or is_initialized(pod):
        pod.set_condition(t, "Initialized", True, "PodCompleted" if phase == "Succeeded" else "")
    else:
        text = f"containers with incomplete status: [{' '.join(_incomplete(pod))}]"
        pod.set_condition(t, "Initialized", False, "ContainersNotInitialized", text)
    if terminal:
        for kind in ("ContainersReady", "Ready"):
            pod.set_condition(t, kind, False, terminal)
        return
    unready = [c.name for c in pod.containers if c.kind in (MAIN, SIDECAR) and not c.is_ready]
    why, text = "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    pod.set_condition(t, "ContainersReady", not unready, why if unready else "", text if unready else "")
    if not unready:
        gates = _closed_gates(pod) if pod.pod.spec.readiness_gates else []
        why, text = ("ReadinessGatesNotReady", ", ".join(gates)) if gates else ("", "")
    pod.set_condition(t, "Ready", not why, why, text)


def _closed_gates(pod: PodContext) -> list[str]:
    """Return what is wrong with each readiness gate that is not met (KEP-580)."""
    held = {c.type: c.status for c in pod.pod.status.conditions}
    problems: list[str] = []
    for kind in (gate.condition_type for gate in pod.pod.spec.readiness_gates):
        if kind not in held:
            problems.append(f'corresponding condition of pod readiness gate "{kind}" does not exist.')
        elif held[kind] != "True":
            problems.append(f'the status of pod readiness gate "{kind}" is not "True", but {held[kind]}')
    return problems


def render(pod: PodContext) -> Document:
    """Return the present status fields that a kubelet owns."""
    phase = phase_of(pod)
    status: Document = {
        "phase": phase,
        "observedGeneration": pod.generation,
        "hostIP": pod.node.host_ip,
        "hostIPs": [{"ip": pod.node.host_ip}],
        "startTime": pod.time_text(pod.started_s),
        "conditions": _render_conditions(pod, phase),
    }
    if pod.has_ip and pod.pod_ip:
        status["podIP"] = pod.pod_ip
        status["podIPs"] = [{"ip": pod.pod_ip}]
    rendered: dict[str, list[Document]] = {MAIN: [], INIT: [], EPHEMERAL: []}
    for container in pod.containers:
        kind = INIT if container.kind == SIDECAR else container.kind
        rendered[kind].append(_render_container(pod, container))
    if rendered[INIT]:
        status["initContainerStatuses"] = rendered[INIT]
    status["containerStatuses"] = rendered[MAIN]
    if rendered[EPHEMERAL]:
        status["ephemeralContainerStatuses"] = rendered[EPHEMERAL]
    if pod.allocated.level is not None:
        status["allocatedResources"] = level_of(pod.allocated).requests
        status["resources"] = requirements(level_of(pod.actual))
    if pod.termination is not None and phase == "Failed" and pod.termination.reason:
        status["reason"] = pod.termination.reason
        status["message"] = pod.termination.message
    return status


def _render_conditions(pod: PodContext, phase: str) -> list[Document]:
    held = pod.conditions
    wanted = {kind: held[kind] for kind in _CONDITIONS if kind in held}
    if "PodScheduled" not in [c.type for c in pod.pod.status.conditions]:
        wanted["PodScheduled"] = Condition("True", pod.time_text(pod.started_s))
    end = pod.termination
    if end is not None and end.is_disruption and phase in ("Succeeded", "Failed"):
        wanted["DisruptionTarget"] = Condition(
            "True", pod.conditions["Ready"].since, "TerminationByKubelet", end.message
        )
    return condition_documents(pod, wanted)


def _render_container(pod: PodContext, container: Container) -> Document:
    state: dict[str, Any]
    match container.state:
        case _C.RUNNING if container.is_seen:
            state = {"running": {"startedAt": pod.time_text(container.started_s)}}
        case _C.EXITED if container.ended is not None:
            state = {"terminated": msgspec.to_builtins(container.ended)}
        case _C.BACKOFF | _C.STUCK:
            state = {"waiting": {"reason": container.waiting_reason, "message": container.waiting_message}}
        case _:
            state = {"waiting": {"reason": waiting_reason(pod, container)}}
    if "waiting" in state and pod.state == PodState.TERMINATED and container.kind == MAIN and is_initialized(pod):
        # TerminatePod: what was never seen to end is reported as unknown (kubelet 3.4).
        text = "The container could not be located when the pod was terminated"
        unknown = {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": text}
        state = {"terminated": {**unknown, "startedAt": None, "finishedAt": None}}
    is_running, was_seen = container.state == _C.RUNNING, container.was_seen
    last = container.ended if container.state in _BETWEEN_RUNS else container.last
    document: Document = {
        "name": container.name,
        "state": state,
        "lastState": {"terminated": msgspec.to_builtins(last)} if last is not None else {},
        "ready": container.is_ready or (container.kind == INIT and _is_done(container)),
        "restartCount": container.restarts,
        "image": container.image,
        "imageID": image_id(container.image) if was_seen else "",
        "started": container.is_started,
    }
    if (size := pod.allocated.containers.get(container.name)) is not None:
        if size.requests:
            document["allocatedResources"] = size.requests
        document["resources"] = requirements(pod.actual.of(container.name) if is_running else size)
    health = [*pod.device_health.get(container.name, ()), *pod.claim_health.get(container.name, ())]
    if health:
        document["allocatedResourcesStatus"] = health
    if was_seen:
        document["containerID"] = f"keplab://{pod.key.uid}/{container.name}/{container.restarts}"
    return document


@cache
def image_id(image: str) -> str:
    """Return the runtime's id of an image on the node: its repository and a digest made of its name."""
    repository, at, digest = image.partition("@")
    if not at:
        last = repository.rpartition("/")[2]
        repository = repository[: len(repository) - len(last)] + last.partition(":")[0]
        digest = f"sha256:{sha256(image.encode()).hexdigest()}"
    host, slash, _ = repository.partition("/")
    if not slash:
        repository = f"docker.io/library/{repository}"
    elif "." not in host and ":" not in host and host != "localhost":
        repository = f"docker.io/{repository}"
    return f"{repository}@{digest}"


def waiting_reason(pod: PodContext, container: Container) -> str:
    """Return why a container does not run yet, in the words of its status."""
    if container.state in (_C.BACKOFF, _C.STUCK):
        return container.waiting_reason
    if container.ended is not None:
        return container.waiting_reason or "ContainerCreating"
    has_init = bool(pod.pod.spec.init_containers)
    return "PodInitializing" if has_init and (container.kind == MAIN or pod.has_ip) else "ContainerCreating"


def _is_done(container: Container) -> bool:
    return container.state == _C.EXITED and container.exit_code == 0


def condition_document(pod: PodContext, kind: str, condition: Condition) -> Document:
    """Return a condition in the form in which it is written."""
    return condition_documents(pod, {kind: condition})[0]


def condition_documents(pod: PodContext, conditions: Mapping[str, Condition]) -> list[Document]:
    """Return conditions in the form in which they are written."""
    documents: list[Document] = []
    for kind, condition in conditions.items():
        document: Document = {"type": kind, "status": condition.status}
        if condition.since:  # a condition of another writer may lack it, and "" is no time
            document["lastTransitionTime"] = condition.since
        document["observedGeneration"] = condition.generation or pod.generation
        if condition.reason:
            document["reason"] = condition.reason
        if condition.message:
            document["message"] = condition.message
        documents.append(document)
    return documents
