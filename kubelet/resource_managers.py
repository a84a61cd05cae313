"""The resource managers of one node behind one door: topology, CPUs and devices decide a pod together. Pure.

Containers are served one after the other (scope container) or the pod as a whole (scope pod); each gets
its share inside the merged hint's NUMA nodes. Source: kubelet 5.3 to 5.5.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kubelet.config import NodeDefinition
from kubelet.cpu_manager import CpuManager
from kubelet.device_manager import DeviceManager
from kubelet.device_words import Share
from kubelet.topology import ProviderHints, merge
from services.api.kinds.pod import Container, Pod
from services.api.podresources import Amounts, container_requests, pod_requests, qos_class

BUILT_IN = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})


class Rejection(msgspec.Struct, frozen=True):
    """Why a pod may not run here, in Kubernetes' words."""

    reason: str
    message: str


class Allocation(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a pod has to itself. `devices`: by container and resource, in the order they were allocated."""

    cpus: tuple[int, ...] = ()
    devices: tuple[Share, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was allocated."""
        return not (self.cpus or self.devices)


NO_ALLOCATION = Allocation()
TOPOLOGY_ERROR = Rejection("TopologyAffinityError", "Resources cannot be allocated with Topology locality")


class DeviceRejection(Rejection, frozen=True):
    """Devices are missing: a plugin that comes back, or a device that recovers, may cure it."""


class _Need(msgspec.Struct, frozen=True):
    """What one container, or the pod, asks of the managers. `cpus`: exclusive ones."""

    cpus: int
    devices: dict[str, int]


class ResourceManagers:
    """One node's CPUs and devices with the topology policy above them."""

    def __init__(self, node: NodeDefinition, *, release_is_lazy: bool = False) -> None:
        self._node = node
        per_numa = [n.cpus for n in node.numa] or [node.cpus]
        self._numa_count = len(per_numa)
        self.cpus = CpuManager(per_numa, threads_per_core=node.threads_per_core, reserved=node.reserved_cpus)
        self.devices = DeviceManager([n.devices for n in node.numa] or [{}], node.extended)
        self._release_is_lazy = release_is_lazy
        self._stale: list[Allocation] = []
        self._distances: tuple[tuple[int, ...], ...] = ()
        if node.prefer_closest_numa:
            self._distances = node.distances or tuple(
                tuple(10 if i == j else 20 for j in range(self._numa_count)) for i in range(self._numa_count)
            )
        self._idle = node.topology_policy == "none" and not node.has_static_cpus and self.devices.is_empty
        self.admissions = 0
        self.topology_errors = 0

    def admit(self, pod: Pod) -> Allocation | Rejection:
        """Allocate for the pod, or say why not; after a rejection nothing of it stays taken.

        With a lazy release the parts already allocated stay taken until the next admission has begun
        and been decided (switch kubelet.release_on_reject).
        """
        if self._idle:
            return NO_ALLOCATION
        self.admissions += 1
        stale, self._stale = self._stale, []
        try:
            outcome = self._admit(pod)
        finally:
            for allocation in stale:
                self.release(allocation)
        return outcome

    def take(self, allocation: Allocation) -> None:
        """Take what a checkpoint says a pod has."""
        self.cpus.take(allocation.cpus)
        self.devices.take(allocation.devices)

    def release(self, allocation: Allocation) -> None:
        """Give a pod's allocation back."""
        self.cpus.release(allocation.cpus)
        self.devices.release(allocation.devices)

    # --- inside ---

    def _admit(self, pod: Pod) -> Allocation | Rejection:
        exclusive = self._node.has_static_cpus and qos_class(pod) == "Guaranteed"
        if exclusive and self._node.full_pcpus_only and (rejection := self._check_alignment(pod)):
            return rejection
        if self._node.topology_scope == "pod":
            return self._admit_at_once(pod, exclusive)
        return self._admit_by_container(pod, exclusive)

    def _admit_at_once(self, pod: Pod, exclusive: bool) -> Allocation | Rejection:
        """Scope pod: one merge for the pod's total, then every container inside it."""
        need = self._need(pod_requests(pod), exclusive)
        mask, admitted = self._merged(need, frozenset())
        if not admitted:
            self.topology_errors += 1
            return TOPOLOGY_ERROR
        shares = self._devices_at_once(pod, mask)
        return shares if isinstance(shares, Rejection) else self._with_cpus(shares, need, mask, frozenset())

    def _devices_at_once(self, pod: Pod, mask: int | None) -> tuple[Share, ...] | Rejection:
        """Allocate every container's devices inside the pod's one mask."""
        shares: list[Share] = []
        reusable: dict[str, list[str]] = {}
        for container, is_init in _in_order(pod):
            got = self._allocate_devices(container, self._need(container_requests(container), False), mask, reusable)
            if isinstance(got, Rejection):
                self.devices.release(shares)
                return got
            shares += got
            _reuse(reusable, got, is_free=is_init and container.restart_policy != "Always")
        return tuple(shares)

    def _admit_by_container(self, pod: Pod, exclusive: bool) -> Allocation | Rejection:
        """Scope container: one after the other; main containers may reuse what plain init containers had."""
        done: list[Allocation] = []
        reusable_cpus: frozenset[int] = frozenset()
        reusable_devices: dict[str, list[str]] = {}
        for container, is_init in _in_order(pod):
            need = self._need(container_requests(container), exclusive)
            if not need.cpus and not need.devices:
                continue
            mask, admitted = self._merged(need, reusable_cpus, reusable_devices)
            outcome: Allocation | Rejection
            if admitted:
                shares = self._allocate_devices(container, need, mask, reusable_devices)
                if isinstance(shares, Rejection):
                    outcome = shares
                else:
                    outcome = self._with_cpus(tuple(shares), need, mask, reusable_cpus)
            else:
                self.topology_errors += 1
                outcome = TOPOLOGY_ERROR
            if isinstance(outcome, Rejection):
                self._give_back(done)
                return outcome
            done.append(outcome)
            is_free = is_init and container.restart_policy != "Always"
            if is_free:
                reusable_cpus |= frozenset(outcome.cpus)
            else:
                reusable_cpus -= frozenset(outcome.cpus)
            _reuse(reusable_devices, outcome.devices, is_free=is_free)
        return _sum(done)

    def _give_back(self, done: list[Allocation]) -> None:
        if self._release_is_lazy and self.devices.asked is None:
            self._stale += done
        else:
            for allocation in done:
                self.release(allocation)

    def _check_alignment(self, pod: Pod) -> Rejection | None:
        threads = self._node.threads_per_core
        for container, _ in _in_order(pod):
            cpus = self._need(container_requests(container), True).cpus
            if cpus % threads:
                return Rejection(
                    "SMTAlignmentError",
                    f"SMT Alignment Error: requested {cpus} cpus not multiple cpus per core = {threads}",
                )
        return None

    def _need(self, requests: Amounts, exclusive: bool) -> _Need:
        milli = requests.get("cpu", 0)
        cpus = milli // 1000 if exclusive and milli % 1000 == 0 else 0
        devices = {r: n for r, n in sorted(requests.items()) if self.devices.knows(r) and n > 0}
        return _Need(cpus, devices)

    def _merged(
        self, need: _Need, reusable: frozenset[int], devices: dict[str, list[str]] | None = None
    ) -> tuple[int | None, bool]:
        providers: list[ProviderHints] = []
        if need.cpus:
            providers.append({"cpu": self.cpus.hints(need.cpus, reusable)})
        left = devices or {}
        providers += [{r: self.devices.hints(r, n, left.get(r, ()))} for r, n in need.devices.items()]
        if not providers:
            return None, True
        hint, admitted = merge(
            providers, self._numa_count, policy=self._node.topology_policy, distances=self._distances
        )
        return hint.mask, admitted

    def _with_cpus(
        self, shares: tuple[Share, ...], need: _Need, mask: int | None, reusable: frozenset[int]
    ) -> Allocation | Rejection:
        """Return the allocation with exclusive CPUs; if they cannot be had, the devices are given back."""
        if not need.cpus:
            return Allocation((), shares)
        cpus = self.cpus.allocate(need.cpus, mask, reusable)
        if isinstance(cpus, str):
            self.devices.release(shares)
            return Rejection("UnexpectedAdmissionError", cpus)
        return Allocation(cpus, shares)

    def _allocate_devices(
        self, container: Container, need: _Need, mask: int | None, left: dict[str, list[str]]
    ) -> list[Share] | Rejection:
        """Allocate a container's devices; `left`: those of init containers that are done, by resource."""
        shares: list[Share] = []
        for resource, count in need.devices.items():
            ids = self.devices.allocate(resource, count, mask, left.get(resource, ()))
            if isinstance(ids, str):
                self.devices.release(shares)
                return unexpected(ids)
            shares.append(Share(container.name, resource, ids))
        return shares


def _in_order(pod: Pod) -> list[tuple[Container, bool]]:
    return [(c, True) for c in pod.spec.init_containers] + [(c, False) for c in pod.spec.containers]


def unexpected(text: str) -> DeviceRejection:
    """Return the rejection of a pod whose devices cannot be had, in Kubernetes' words."""
    return DeviceRejection("UnexpectedAdmissionError", f"Allocate failed due to {text}, which is unexpected")


def _reuse(left: dict[str, list[str]], got: Sequence[Share], *, is_free: bool) -> None:
    """Note what later containers may take over (`is_free`), or what one of them has taken over for good."""
    for share in got:
        held = left.setdefault(share.resource, [])
        if is_free:
            held += [device for device in share.ids if device not in held]
        else:
            left[share.resource] = [device for device in held if device not in share.ids]


def _sum(parts: list[Allocation]) -> Allocation:
    if len(parts) <= 1:
        return parts[0] if parts else NO_ALLOCATION
    cpus: dict[int, None] = {}
    for part in parts:
        cpus.update(dict.fromkeys(part.cpus))
    return Allocation(tuple(sorted(cpus)), tuple(share for part in parts for share in part.devices))
