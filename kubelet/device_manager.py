"""The device manager: how many devices of each resource every NUMA node has and who uses them. Pure.

Devices of one resource on one NUMA node are alike; an allocation is a count for each NUMA node. Extended
resources declared without NUMA nodes are devices without topology. Source: kubelet 5.5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubelet.topology import Hint, bits, counted_hints

Taken = dict[str, list[int]]
"""Resource to counts by NUMA node; the last place is for devices without topology."""


class DeviceManager:
    """The devices of one node. Invariant: `0 <= free <= total` at every place."""

    def __init__(self, devices_by_numa: Sequence[Mapping[str, int]], without_topology: Mapping[str, int]) -> None:
        self._numa_count = len(devices_by_numa)
        names = sorted({name for devices in devices_by_numa for name in devices} | set(without_topology))
        self.total: Taken = {
            name: [d.get(name, 0) for d in devices_by_numa] + [without_topology.get(name, 0)] for name in names
        }
        self.free: Taken = {name: list(counts) for name, counts in self.total.items()}

    def hints(self, resource: str, requested: int) -> list[Hint] | None:
        """Return NUMA hints, or None when its devices have no topology."""
        total = self.total[resource][:-1]
        if not any(total):
            return None
        return counted_hints(requested, self.free[resource][:-1], total)

    def allocate(self, resource: str, requested: int, mask: int | None) -> list[int] | str:
        """Take devices, inside `mask` first; return counts by place, or why it cannot be done."""
        if resource not in self.total:
            return f"cannot allocate unregistered device {resource}"
        free = self.free[resource]
        if not any(self.total[resource]):
            return f"no healthy devices present; cannot allocate unhealthy devices {resource}"
        if sum(free) < requested:
            return (
                f"requested number of devices unavailable for {resource}. "
                f"Requested: {requested}, Available: {sum(free)}"
            )
        inside = bits(mask) if mask is not None else []
        order = inside + [i for i in range(self._numa_count + 1) if i not in inside]
        taken = [0] * (self._numa_count + 1)
        for place in order:
            take = min(free[place], requested)
            taken[place] += take
            free[place] -= take
            requested -= take
        return taken

    def take(self, taken: Mapping[str, Sequence[int]]) -> None:
        """Take exactly these, as a checkpoint says; health and room are not asked (k/k #109595)."""
        for resource, counts in taken.items():
            if resource in self.free:
                for place, count in enumerate(counts[: self._numa_count + 1]):
                    self.free[resource][place] -= count

    def release(self, taken: Mapping[str, Sequence[int]]) -> None:
        """Give these back."""
        for resource, counts in taken.items():
            if resource in self.free:
                for place, count in enumerate(counts[: self._numa_count + 1]):
                    total = self.total[resource][place]
                    self.free[resource][place] = min(total, self.free[resource][place] + count)
