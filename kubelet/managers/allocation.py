"""The allocation of a pod on its node, or the reason for its rejection. Pure."""

from typing import Any

import msgspec

from kubelet.managers.cpu_topology import format_cpus
from kubelet.managers.device_calls import Share


class Rejection(msgspec.Struct, frozen=True):
    """The reason why a pod may not run here, in Kubernetes' words."""

    reason: str
    message: str


class DeviceRejection(Rejection, frozen=True):
    """A rejection because devices are missing: a plugin that comes back or a device that recovers may lift it."""


class Block(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of one kind, for one container, from a group of NUMA nodes together."""

    numas: tuple[int, ...]
    kind: str
    size: int


class Allocation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The resources allocated to a pod alone. `devices`: by container and resource, in the order of allocation.

    `cpus` are all of the pod's, `containers` each container's: CPUs of a plain init container may be another
    container's too.
    """

    cpus: tuple[int, ...] = ()
    devices: tuple[Share, ...] = ()
    memory: tuple[Block, ...] = ()
    containers: dict[str, tuple[int, ...]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing was allocated."""
        return not (self.cpus or self.devices or self.memory)

    def fields(self) -> dict[str, Any]:
        """Return the CPUs of each container and the NUMA nodes of the memory, as the event log shows them."""
        fields: dict[str, Any] = {}
        if self.containers:
            fields["cpus"] = {container: format_cpus(cpus) for container, cpus in self.containers.items()}
        if self.memory:
            fields["memory_numas"] = sorted({numa for block in self.memory for numa in block.numas})
        return fields


NO_ALLOCATION = Allocation()


def unexpected_admission_error(text: str) -> Rejection:
    """Return the rejection of a pod that a manager could not serve, in Kubernetes' words."""
    return Rejection("UnexpectedAdmissionError", f"Allocate failed due to {text}, which is unexpected")


def devices_unexpected(text: str) -> DeviceRejection:
    """Return the rejection of a pod whose devices cannot be allocated."""
    return DeviceRejection("UnexpectedAdmissionError", unexpected_admission_error(text).message)
