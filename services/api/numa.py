"""Needs of a container, or of a whole pod, from a node's managers: CPUs, memory and huge pages, devices. Pure.

Source: kubelet 5.3 to 5.5; KEP-753 (sidecars); upstream `podGuaranteedCPUs`, `getPodRequestedResources`,
`HugePageSizeFromResourceName`, `IsHugePageResourceValueDivisible`.
"""

import re
from typing import Final

import msgspec

from services.api.kinds.pod import Container, Pod
from services.api.podresources import Amounts, at_once, container_requests, pod_requests
from services.api.quantity import units

MEMORY = "memory"
PREFIX: Final = "hugepages-"
"""Name prefix of huge page resources, such as `hugepages-2Mi`; amounts are whole pages."""
_PAGES = re.compile(r"hugepages-([0-9]+[KMGT]i)")
_COUNTED = frozenset(("cpu", "ephemeral-storage", "pods"))


def page_size(resource: str) -> int:
    """Return the page size of `hugepages-2Mi` in bytes. Raises: ValueError for another name."""
    match = _PAGES.fullmatch(resource)
    size = units(match[1]) if match else 0
    if not size:
        raise ValueError(f"{resource!r}: want for example {PREFIX}2Mi or {PREFIX}1Gi")
    return size


def is_memory(resource: str) -> bool:
    """Whether the memory manager allocates the resource: memory, or huge pages."""
    return resource == MEMORY or resource.startswith(PREFIX)


class Need(msgspec.Struct, frozen=True):
    """Exclusive resources that the managers must allocate.

    `cpus`: whole CPUs; `memory`: bytes by kind; `devices`: counts by resource, in order of allocation.
    """

    cpus: int = 0
    memory: Amounts = {}
    devices: dict[str, int] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no manager needs to allocate anything."""
        return not (self.cpus or self.memory or self.devices)


def has_pod_level(pod: Pod) -> bool:
    """Whether the pod has pod-level requests or limits, besides its containers'."""
    level = pod.spec.resources
    return level is not None and bool(level.requests or level.limits)


def container_need(container: Container) -> Need:
    """Return the container's need. A fractional CPU request is not exclusive and counts as no CPU."""
    requests = container_requests(container)
    milli = requests.get("cpu", 0)
    memory = {name: size for name, size in sorted(requests.items()) if is_memory(name) and size > 0}
    return Need(milli // 1000 if milli % 1000 == 0 else 0, memory, _devices(requests))


def pod_need(pod: Pod) -> Need:
    """Return the most that the pod's containers need at the same time.

    Memory counts only the kinds that main containers need.
    """
    main, init = map(container_need, pod.spec.containers), map(container_need, pod.spec.init_containers)
    needs = [{"cpu": need.cpus, **need.memory} for need in main]
    most = at_once(pod, needs, ({"cpu": need.cpus, **need.memory} for need in init))
    memory = {kind: most[kind] for kind in sorted({kind for need in needs for kind in need} - {"cpu"})}
    return Need(most.get("cpu", 0), memory, _devices(pod_requests(pod)))


def _devices(requests: Amounts) -> dict[str, int]:
    return {name: n for name, n in sorted(requests.items()) if n > 0 and name not in _COUNTED and not is_memory(name)}
