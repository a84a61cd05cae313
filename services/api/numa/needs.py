"""What a container, or a pod as a whole, asks of a node's resource managers, and gets from NUMA nodes. Pure.

Source: kubelet 5.3 to 5.5; KEP-753 (sidecars); upstream `podGuaranteedCPUs`, `getPodRequestedResources`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from services.api.kinds.pod import Container, Pod
from services.api.numa.huge_pages import PREFIX
from services.api.podresources import Amounts, container_requests, pod_requests

MEMORY = "memory"
_COUNTED = frozenset(("cpu", "ephemeral-storage", "pods"))


def is_memory(resource: str) -> bool:
    """Whether the memory manager gives it out: memory, or huge pages."""
    return resource == MEMORY or resource.startswith(PREFIX)


class Need(msgspec.Struct, frozen=True):
    """`cpus`: whole ones; `memory`: bytes by kind; `devices`: by resource, in the order they are allocated."""

    cpus: int = 0
    memory: Amounts = {}
    devices: dict[str, int] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no manager has anything to do."""
        return not (self.cpus or self.memory or self.devices)


def has_pod_level(pod: Pod) -> bool:
    """Whether the pod has requests or limits of its own, beside its containers'."""
    level = pod.spec.resources
    return level is not None and bool(level.requests or level.limits)


def container_need(container: Container) -> Need:
    """Return what the container asks for; a fraction of a CPU is not exclusive, and no need."""
    requests = container_requests(container)
    return Need(_whole_cpus(requests), _memory(requests), _devices(requests))


def pod_need(pod: Pod) -> Need:
    """Return the most that the pod's containers need at the same time."""
    asked = {c.name: container_need(c) for c in (*pod.spec.init_containers, *pod.spec.containers)}
    kinds = sorted({kind for c in pod.spec.containers for kind in asked[c.name].memory})
    return Need(
        _most(pod, {name: need.cpus for name, need in asked.items()}),
        {kind: _most(pod, {name: need.memory.get(kind, 0) for name, need in asked.items()}) for kind in kinds},
        _devices(pod_requests(pod)),
    )


def _whole_cpus(requests: Amounts) -> int:
    milli = requests.get("cpu", 0)
    return milli // 1000 if milli % 1000 == 0 else 0


def _memory(requests: Amounts) -> Amounts:
    return {name: size for name, size in sorted(requests.items()) if is_memory(name) and size > 0}


def _devices(requests: Amounts) -> dict[str, int]:
    return {name: n for name, n in sorted(requests.items()) if n > 0 and name not in _COUNTED and not is_memory(name)}


def _most(pod: Pod, asked: Mapping[str, int]) -> int:
    """Return the most at any moment: all main containers and sidecars, or an init container beside earlier sidecars."""
    sidecars = peak = 0
    for container in pod.spec.init_containers:
        if container.restart_policy == "Always":
            sidecars += asked[container.name]
        else:
            peak = max(peak, sidecars + asked[container.name])
    return max(peak, sidecars + sum(asked[container.name] for container in pod.spec.containers))
