"""The CPU manager's static policy: which hardware threads a Guaranteed pod has to itself. Pure.

CPUs are numbered NUMA node by NUMA node, the threads of one core next to each other. The lowest ids are
reserved for the system and never exclusive. Source: kubelet 5.4; KEP-375, KEP-2625 (full-pcpus-only).
"""

from __future__ import annotations

from collections.abc import Sequence

from kubelet.topology import Hint, bits, counted_hints


class CpuManager:
    """The CPUs of one node and who has them.

    Invariant: `free` and all allocations are disjoint, and none contains a reserved CPU.
    """

    def __init__(self, cpus_by_numa: Sequence[int], *, threads_per_core: int = 1, reserved: int = 0) -> None:
        self.threads_per_core = threads_per_core
        self._numa_of: dict[int, int] = {}
        next_id = 0
        for numa, count in enumerate(cpus_by_numa):
            for _ in range(count):
                self._numa_of[next_id] = numa
                next_id += 1
        self._numa_count = len(cpus_by_numa)
        self.usable = set(range(reserved, next_id))
        self.free = set(self.usable)

    def _count(self, cpus: set[int]) -> list[int]:
        counts = [0] * self._numa_count
        for cpu in cpus:
            counts[self._numa_of[cpu]] += 1
        return counts

    def left(self, numa: int) -> tuple[int, int]:
        """Return how many CPUs of that NUMA node are free, and how many can be exclusive at all."""
        return self._count(self.free)[numa], self._count(self.usable)[numa]

    def hints(self, requested: int, reusable: frozenset[int] = frozenset()) -> list[Hint]:
        """Return NUMA hints for that many exclusive CPUs; `reusable` ones count as free."""
        return counted_hints(requested, self._count(self.free | reusable), self._count(self.usable))

    def allocate(
        self, requested: int, mask: int | None, reusable: frozenset[int] = frozenset()
    ) -> tuple[int, ...] | str:
        """Take that many CPUs, inside `mask` first; return them sorted, or why it cannot be done.

        Packs whole NUMA nodes, then whole cores, then single threads, always the lowest ids.
        """
        pool = self.free | reusable
        if len(pool) < requested:
            return f"not enough cpus available to satisfy request: requested={requested}, available={len(pool)}"
        chosen: list[int] = []
        preferred = bits(mask) if mask is not None else list(range(self._numa_count))
        others = [i for i in range(self._numa_count) if i not in preferred]
        for group in (preferred, others):
            chosen += self._pack(pool - set(chosen), group, requested - len(chosen))
        self.free -= set(chosen)
        return tuple(sorted(chosen))

    def _pack(self, pool: set[int], numa_ids: Sequence[int], wanted: int) -> list[int]:
        """Return up to `wanted` CPUs of those NUMA nodes, whole nodes and cores before threads."""
        chosen: list[int] = []
        by_numa = {i: sorted(c for c in pool if self._numa_of[c] == i) for i in numa_ids}
        for i in numa_ids:
            whole = sum(1 for c in self.usable if self._numa_of[c] == i)
            if 0 < whole == len(by_numa[i]) <= wanted - len(chosen):
                chosen += by_numa.pop(i)
        # What is left of the request goes to the fullest NUMA nodes first, so that empty ones stay whole.
        rest = sorted(by_numa, key=lambda i: (len(by_numa[i]) < wanted - len(chosen), len(by_numa[i]), i))
        threads = self.threads_per_core
        for whole_cores in (True, False):
            for i in rest:
                cores: dict[int, list[int]] = {}
                for cpu in by_numa[i]:
                    cores.setdefault(cpu // threads, []).append(cpu)
                for cpus in cores.values():
                    if whole_cores and (len(cpus) < threads or wanted - len(chosen) < threads):
                        continue
                    take = [c for c in cpus if c not in chosen][: wanted - len(chosen)]
                    chosen += take
                if len(chosen) == wanted:
                    return chosen
        return chosen

    def take(self, cpus: Sequence[int]) -> None:
        """Take exactly these, as a checkpoint says; they need not be free."""
        self.free -= set(cpus)

    def release(self, cpus: Sequence[int]) -> None:
        """Give these back."""
        self.free |= set(cpus) & self.usable
