"""The resource managers of one node behind one interface: topology, devices, CPUs and memory decide together. Pure.

The managers serve one container after the other, init containers first; each gets its share inside the NUMA nodes of
the merged hint: its own (scope container), or one for the whole pod (scope pod). Source: kubelet 5.3 to 5.5.
"""

from collections.abc import Callable
from typing import Final

from kubelet.managers.allocation import (
    NO_ALLOCATION,
    Allocation,
    Block,
    Rejection,
    devices_unexpected,
    unexpected_admission_error,
)
from kubelet.managers.cpu_manager import CpuManager
from kubelet.managers.device_calls import Share
from kubelet.managers.device_manager import DeviceManager
from kubelet.managers.memory_manager import MemoryManager, Reusable, without_reused
from kubelet.managers.node_machine import MachineDefinition
from kubelet.managers.topology import Hint, ProviderHints, merge
from services.api.kinds.pod import Container, Pod
from services.api.numa import Need, container_need, has_pod_level, pod_need
from services.api.podresources import qos_class
from services.telemetry.metrics import Counts

TOPOLOGY_ERROR = Rejection("TopologyAffinityError", "Resources cannot be allocated with Topology locality")
ALIGNED: Final = "kubelet_container_aligned_compute_resources_count"
FAILED: Final = "kubelet_container_aligned_compute_resources_failure_count"


class ManagerCounters:
    """The counters of one node's managers, under upstream's names.

    Alignment is counted only where it is guaranteed: by a policy or an option. Source: kubelet 10; upstream
    `pkg/kubelet/metrics`.
    """

    def __init__(self, node: MachineDefinition) -> None:
        self.counts = Counts()
        self.topology_errors = 0
        policy, scope = node.topology_policy, node.topology_scope
        self._has_policy, self._is_by_pod = policy != "none", scope == "pod"
        self._numa = (scope, "numa_node") if policy == "single-numa-node" else ()
        has_whole_cores = node.has_static_cpus and node.cpu_choices.full_pcpus_only
        self._physical = ("container", "physical_cpu") if has_whole_cores else ()

    def count_admitted(self, pod: Pod) -> None:
        """Count an admitted pod: per container, or per pod."""
        if self._numa:
            containers = len(pod.spec.init_containers) + len(pod.spec.containers)
            self.counts.add(ALIGNED, *self._numa, by=1 if self._is_by_pod else containers)

    def count_refused(self, *, is_topology: bool) -> None:
        """Count a rejected pod. `is_topology`: because of its topology, rather than by a manager."""
        self.topology_errors += self._has_policy
        if self._numa and is_topology:
            self.counts.add(FAILED, *self._numa)

    def count_pinning(self, manager: str, *, is_done: bool) -> None:
        """Count a container that requested CPUs (`cpu`) or memory of its own."""
        self.counts.add(f"kubelet_{manager}_manager_pinning_requests_total")
        if not is_done:
            self.counts.add(f"kubelet_{manager}_manager_pinning_errors_total")
        if manager == "cpu" and self._physical:
            self.counts.add(ALIGNED if is_done else FAILED, *self._physical)


class _Served:
    """The resources that a pod's containers got so far, and those that plain init containers leave to the next."""

    def __init__(self) -> None:
        self.containers: dict[str, tuple[int, ...]] = {}
        self.devices: list[Share] = []
        self.lasting: list[Block] = []
        self.init_memory: tuple[Block, ...] = ()
        self.reusable_cpus: frozenset[int] = frozenset()
        self.reusable_devices: dict[str, list[str]] = {}
        self.reusable_memory = Reusable()

    def got_cpus(self, container: str, cpus: tuple[int, ...], *, leaves: bool) -> None:
        self.containers[container] = cpus
        self.reusable_cpus = self.reusable_cpus | set(cpus) if leaves else self.reusable_cpus - set(cpus)

    def got_devices(self, share: Share, *, leaves: bool) -> None:
        self.devices.append(share)
        held = self.reusable_devices.setdefault(share.resource, [])
        if leaves:
            held += [device for device in share.ids if device not in held]
        else:
            self.reusable_devices[share.resource] = [device for device in held if device not in share.ids]

    def got_memory(self, blocks: tuple[Block, ...], *, leaves: bool) -> None:
        self.reusable_memory.record_use(blocks, is_init=leaves)
        self.init_memory = without_reused(self.init_memory, blocks)
        if leaves:
            self.init_memory += blocks
        else:
            self.lasting += blocks

    def allocation(self) -> Allocation:
        """Return what the pod has in all."""
        cpus = sorted({cpu for each in self.containers.values() for cpu in each})
        memory = (*self.init_memory, *self.lasting)
        if not (cpus or self.devices or memory):
            return NO_ALLOCATION
        return Allocation(tuple(cpus), tuple(self.devices), memory, self.containers)


class ResourceManagers:
    """One node's managers. `cpus` and `memory` are None without a static policy.

    Idle managers cost a node nothing.
    """

    def __init__(self, node: MachineDefinition) -> None:
        self._node = node
        self._numa_count = len(node.numa) or 1
        self.cpus: CpuManager | None = None
        if node.has_static_cpus:
            self.cpus = CpuManager(node.machine(), options=node.cpu_choices, reserved=node.effective_reserved_cpus)
        self.memory: MemoryManager | None = None
        if node.memory_policy == "Static":
            self.memory = MemoryManager(node.memory_by_numa().allocatable)
        self.devices = DeviceManager([n.devices for n in node.numa] or [{}], node.extended)
        self._distances: tuple[tuple[int, ...], ...] = ()
        if node.topology_policy != "none" and node.topology_choices.prefer_closest_numa_nodes:
            self._distances = node.distances or tuple(
                tuple(10 if i == j else 20 for j in range(self._numa_count)) for i in range(self._numa_count)
            )
        self._is_idle = node.topology_policy == "none" and self.cpus is None and self.memory is None
        self.stopwatch: Callable[[], float] = lambda: 0.0
        """Seconds; the shell says by which clock admissions are measured. An emulated one takes no time."""
        self.admissions = 0
        self.admission_ms = 0.0
        self.counters = ManagerCounters(node)

    def admit(self, pod: Pod) -> Allocation | Rejection:
        """Allocate for the pod, or return the rejection; after a rejection nothing of the pod stays allocated."""
        self.admissions += 1
        if self._is_idle and self.devices.is_empty:
            return NO_ALLOCATION
        began_s = self.stopwatch()
        outcome = self._admit(pod)
        self.admission_ms += 1000 * (self.stopwatch() - began_s)
        return outcome

    def take(self, allocation: Allocation) -> None:
        """Take a pod's allocation as a checkpoint has it."""
        if self.cpus is not None:
            self.cpus.take(allocation.cpus)
        if self.memory is not None:
            self.memory.take(allocation.memory)
        self.devices.take(allocation.devices)

    def release(self, allocation: Allocation) -> None:
        """Release a pod's allocation."""
        if self.cpus is not None:
            self.cpus.release(allocation.cpus)
        if self.memory is not None:
            self.memory.release(allocation.memory)
        self.devices.release(allocation.devices)

    def _admit(self, pod: Pod) -> Allocation | Rejection:
        # The static policies know containers only: a pod with resources of its own shares (upstream, before KEP-5526).
        is_exclusive = not has_pod_level(pod) and qos_class(pod) == "Guaranteed"
        served = _Served()
        hint: Hint | None = None
        refused: Rejection | None = None
        if self._node.topology_policy != "none" and self._node.topology_scope == "pod":
            hint = self._best_hint(self._managed_need(pod_need(pod), is_exclusive), served)
            refused = TOPOLOGY_ERROR if hint is None else None
        # Each in turn, and whether it leaves what it had to the next ones.
        inits = ((container, container.restart_policy != "Always") for container in pod.spec.init_containers)
        for container, leaves in (*inits, *((container, False) for container in pod.spec.containers)):
            if refused is not None:
                break
            need = self._managed_need(container_need(container), is_exclusive)
            if not need.is_empty:
                refused = self._serve(container, need, served, hint, leaves=leaves)
        if refused is None:
            self.counters.count_admitted(pod)
            return served.allocation()
        self.counters.count_refused(is_topology=refused is TOPOLOGY_ERROR)
        if not (done := served.allocation()).is_empty:
            self.release(done)
        return refused

    def _managed_need(self, need: Need, is_exclusive: bool) -> Need:
        """Return what of a need managers of this node give out."""
        return Need(
            cpus=need.cpus if is_exclusive and self.cpus is not None else 0,
            memory=need.memory if is_exclusive and self.memory is not None else {},
            devices={resource: n for resource, n in need.devices.items() if self.devices.knows(resource)},
        )

    def _serve(
        self, container: Container, need: Need, served: _Served, hint: Hint | None, *, leaves: bool
    ) -> Rejection | None:
        """Allocate for one container inside the pod's hint, or its own; return why it cannot be done."""
        hint = hint or self._best_hint(need, served)
        if hint is None:
            return TOPOLOGY_ERROR
        for resource, count in need.devices.items():
            left = served.reusable_devices.get(resource, ())
            ids = self.devices.allocate(resource, count, hint.mask, left)
            if isinstance(ids, str):
                return devices_unexpected(ids)
            served.got_devices(Share(container.name, resource, ids), leaves=leaves)
        if self.cpus is not None and need.cpus:
            problem = self.cpus.alignment_error(need.cpus)
            cpus = problem or self.cpus.allocate(need.cpus, hint.mask, served.reusable_cpus)
            self.counters.count_pinning("cpu", is_done=not isinstance(cpus, str))
            if isinstance(cpus, str):
                return Rejection("SMTAlignmentError", problem) if problem else unexpected_admission_error(cpus)
            served.got_cpus(container.name, cpus, leaves=leaves)
        if self.memory is not None and need.memory:
            blocks = self.memory.allocate(need.memory, hint, served.reusable_memory)
            self.counters.count_pinning("memory", is_done=not isinstance(blocks, str))
            if isinstance(blocks, str):
                return unexpected_admission_error(blocks)
            served.got_memory(blocks, leaves=leaves)
        return None

    def _best_hint(self, need: Need, served: _Served) -> Hint | None:
        """Return the best hint for this need, None when the topology policy refuses all of them."""
        policy = self._node.topology_policy
        if policy == "none":
            return Hint(None, False)
        left = served.reusable_devices
        providers: list[ProviderHints] = [
            {resource: self.devices.hints(resource, n, left.get(resource, ())) for resource, n in need.devices.items()}
        ]
        if self.cpus is not None and need.cpus:
            providers.append({"cpu": self.cpus.hints(need.cpus, served.reusable_cpus)})
        if self.memory is not None and need.memory:
            providers.append(self.memory.hints(need.memory, served.reusable_memory))
        hint, is_admitted = merge(providers, self._numa_count, policy=policy, distances=self._distances)
        return hint if is_admitted else None
