"""The pod as a kubelet reads it: the shared view and the few fields only a node looks at. Pure."""

from __future__ import annotations

from typing import NamedTuple

from services.api.kinds.pod import MIRROR_ANNOTATION, Pod, PodSpec
from services.api.meta import View


class ReadinessGate(View, frozen=True):
    """A condition somebody else sets, without which the pod is not Ready (KEP-580)."""

    condition_type: str = ""


class PodOS(View, frozen=True):
    """The operating system the pod was made for."""

    name: str = ""


class KubeletPodSpec(PodSpec, frozen=True):
    """The shared spec and what only a node looks at."""

    readiness_gates: tuple[ReadinessGate, ...] = ()
    os: PodOS | None = None


class KubeletPod(Pod, frozen=True):
    """A pod as the kubelet sees it."""

    spec: KubeletPodSpec = KubeletPodSpec()


class WorkerKey(NamedTuple):
    """One pod for one binding: a pod that comes back with the same uid is another one here (N3)."""

    uid: str
    generation: int


CRITICAL_PRIORITY = 2_000_000_000
STATIC_ANNOTATION = "kubernetes.io/config.source"


def worker_key(pod: Pod) -> WorkerKey:
    """Return uid and binding generation; 0 when the pod was never bound through the binding subresource."""
    return WorkerKey(pod.metadata.uid, pod.status.binding_generation)


def is_static(pod: Pod) -> bool:
    """Whether it came from a file or is the mirror of one that did."""
    annotations = pod.metadata.annotations
    return MIRROR_ANNOTATION in annotations or annotations.get(STATIC_ANNOTATION, "api") != "api"


def is_critical(pod: Pod) -> bool:
    """Whether lower pods may be evicted for it (upstream `IsCriticalPod`)."""
    return is_static(pod) or pod.spec.priority >= CRITICAL_PRIORITY


def is_daemon(pod: Pod) -> bool:
    """Whether a DaemonSet owns it."""
    owner = pod.metadata.controller
    return owner is not None and owner.kind == "DaemonSet"
