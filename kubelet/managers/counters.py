"""What the resource managers of a node count, under upstream's names. Pure.

Source: kubelet 10; upstream `pkg/kubelet/metrics`.
"""

from __future__ import annotations

from kubelet.managers.node_machine import MachineDefinition
from services.api.kinds.pod import Pod

_ALIGNED = "kubelet_container_aligned_compute_resources_count"
_FAILED = "kubelet_container_aligned_compute_resources_failure_count"


class ManagerCounters:
    """Counters of one node. Alignment is counted only where it is guaranteed: by a policy or an option."""

    def __init__(self, node: MachineDefinition) -> None:
        self.values: dict[str, int] = {}
        self.topology_errors = 0
        policy, scope = node.topology_policy, node.topology_scope
        self._has_policy, self._is_by_pod = policy != "none", scope == "pod"
        self._numa = f'{{scope="{scope}",boundary="numa_node"}}' if policy == "single-numa-node" else ""
        has_whole_cores = node.has_static_cpus and node.cpu_choices.full_pcpus_only
        self._physical = '{scope="container",boundary="physical_cpu"}' if has_whole_cores else ""

    def _count(self, name: str, times: int = 1) -> None:
        self.values[name] = self.values.get(name, 0) + times

    def admitted(self, pod: Pod) -> None:
        """A pod was admitted: container by container, or as a whole."""
        if self._numa:
            containers = len(pod.spec.init_containers) + len(pod.spec.containers)
            self._count(_ALIGNED + self._numa, 1 if self._is_by_pod else containers)

    def refused(self, *, is_topology: bool) -> None:
        """A pod was refused: because of its topology, or by a manager."""
        self.topology_errors += self._has_policy
        if self._numa and is_topology:
            self._count(_FAILED + self._numa)

    def pinned_cpus(self, *, is_done: bool) -> None:
        """A container asked for exclusive CPUs."""
        self._count("kubelet_cpu_manager_pinning_requests_total")
        if not is_done:
            self._count("kubelet_cpu_manager_pinning_errors_total")
        if self._physical:
            self._count((_ALIGNED if is_done else _FAILED) + self._physical)

    def pinned_memory(self, *, is_done: bool) -> None:
        """A container asked for memory of its own."""
        self._count("kubelet_memory_manager_pinning_requests_total")
        if not is_done:
            self._count("kubelet_memory_manager_pinning_errors_total")
