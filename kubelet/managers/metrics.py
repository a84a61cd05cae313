"""Metrics of the resource managers of all nodes of a process, under upstream's names. Pure. Source: kubelet 10."""

from __future__ import annotations

from collections.abc import Sequence

from kubelet.managers.resource_managers import ResourceManagers


def manager_metrics(nodes: Sequence[ResourceManagers]) -> dict[str, float]:
    """Return counters and gauges; those of static policies only where a node has one."""
    topology = "kubelet_topology_manager_admission"
    found: dict[str, float] = {
        f"{topology}_requests_total": sum(node.admissions for node in nodes),
        f"{topology}_errors_total": sum(node.counters.topology_errors for node in nodes),
        f"{topology}_duration_ms_sum": sum(node.admission_ms for node in nodes),
        f"{topology}_duration_ms_count": sum(node.admissions for node in nodes),
    }
    for node in nodes:
        for name, value in node.counters.values.items():
            found[name] = found.get(name, 0.0) + value
    if static := [node.cpus for node in nodes if node.cpus is not None]:
        found["kubelet_cpu_manager_shared_pool_size_millicores"] = sum(1000 * len(cpus.shared) for cpus in static)
        found["kubelet_cpu_manager_exclusive_cpu_allocation_count"] = sum(
            len(cpus.usable) - len(cpus.free) for cpus in static
        )
    return found
