"""The choice of a container's CPUs among the free ones: packed by topology, or evenly over NUMA nodes. Pure.

Packing takes whole sockets and NUMA nodes, then (if configured) as few uncore caches as possible, then
whole cores, then single threads. Among several candidates, the one with the fewest free CPUs and then the
lowest id goes first. Source: kubelet 5.4; KEP-375, KEP-2902 (distribute over NUMA nodes), KEP-4176 (over
cores), KEP-4800 (uncore caches).
"""

import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from kubelet.managers.cpu_topology import CpuTopology


class Taking(msgspec.Struct, frozen=True):
    """The way in which CPUs are chosen.

    `group`: number of CPUs that are handed out together when they are spread over NUMA nodes.
    """

    over_numas: bool = False
    over_cores: bool = False
    by_cache: bool = False
    group: int = 1


def choose(machine: CpuTopology, free: frozenset[int], wanted: int, how: Taking) -> frozenset[int] | str:
    """Return `wanted` of the free CPUs, or why they cannot be had."""
    if wanted <= 0:
        return frozenset()
    if wanted > len(free):
        return f"not enough cpus available to satisfy request: requested={wanted}, available={len(free)}"
    if (
        how.over_numas
        and wanted % how.group == 0
        and (spread := _distribute_cpus(machine, free, wanted, how)) is not None
    ):
        return spread
    return _Packing(machine, free, wanted).pack(how)


class _Packing:
    """One choice under way: the free CPUs, the CPUs taken, and the number still wanted."""

    def __init__(self, machine: CpuTopology, free: frozenset[int], wanted: int) -> None:
        self._machine = machine
        self._free = set(free)
        self._taken: set[int] = set()
        self._wanted = wanted
        self._sockets_first = len(machine.sockets) < len(machine.numas)

    def pack(self, how: Taking) -> frozenset[int]:
        """Take what is wanted; it is there."""
        machine = self._machine
        levels = [(self.numas, machine.numas), (self._sockets, machine.sockets)]
        for order, groups in reversed(levels) if self._sockets_first else levels:
            self._take_whole(order(), groups)
        if how.by_cache:
            self._take_by_cache()
        if not how.over_cores:
            self._take_whole(self._cores(), machine.cores)
        ids, parts = (self._sockets(), machine.sockets) if how.over_cores else (self._cores(), machine.cores)
        self._take([cpu for part in ids for cpu in sorted(parts[part] & self._free)][: self._wanted])
        return frozenset(self._taken)

    def _take(self, cpus: Iterable[int]) -> None:
        before = len(self._taken)
        self._taken.update(cpus)
        self._free -= self._taken
        self._wanted -= len(self._taken) - before

    def _take_whole(self, order: Iterable[int], groups: Mapping[int, frozenset[int]]) -> None:
        for group in [g for g in order if groups[g] <= self._free]:
            if len(groups[group]) <= self._wanted:
                self._take(groups[group])

    def _take_by_cache(self) -> None:
        """Take whole caches while one's worth is wanted, and the rest from the first cache that has it all."""
        machine = self._machine
        for cache in self._caches():
            if self._wanted >= machine.cache_cpus:
                self._take_whole(self._caches(), machine.caches)
            if not self._wanted:
                return
            free = machine.caches[cache] & self._free
            cores = sorted({machine.cpus[cpu].core for cpu in free})[: _ceil(self._wanted, machine.threads)]
            cpus = sorted(cpu for cpu in free if machine.cpus[cpu].core in cores)
            if self._wanted % 2 and machine.threads > 1 and len(cpus) > self._wanted:
                cpus.pop()
            if len(cpus) == self._wanted:
                self._take(cpus)

    def _sort_by_free(self, groups: Mapping[int, frozenset[int]], within: frozenset[int] | set[int]) -> list[int]:
        """Return the groups with free CPUs inside `within`: few free ones first, then the lowest id."""
        inside = within & self._free
        found = [(len(cpus & self._free), group) for group, cpus in groups.items() if not cpus.isdisjoint(inside)]
        return [group for _, group in sorted(found)]

    def numas(self) -> list[int]:
        """Return the NUMA nodes with free CPUs, in the order they are asked."""
        if not self._sockets_first:
            return self._sort_by_free(self._machine.numas, self._free)
        return [n for s in self._sockets() for n in self._sort_by_free(self._machine.numas, self._machine.sockets[s])]

    def _sockets(self) -> list[int]:
        if self._sockets_first:
            return self._sort_by_free(self._machine.sockets, self._free)
        return [s for n in self.numas() for s in self._sort_by_free(self._machine.sockets, self._machine.numas[n])]

    def _caches(self) -> list[int]:
        return [c for n in self.numas() for c in self._sort_by_free(self._machine.caches, self._machine.numas[n])]

    def _cores(self) -> list[int]:
        machine = self._machine
        order, above = (self.numas(), machine.numas) if self._sockets_first else (self._sockets(), machine.sockets)
        return [core for group in order for core in self._sort_by_free(machine.cores, above[group])]


def _distribute_cpus(machine: CpuTopology, free: frozenset[int], wanted: int, how: Taking) -> frozenset[int] | None:
    """Return CPUs in equal parts from the fewest NUMA nodes that can give them; None when none can."""
    group = how.group
    numas = _Packing(machine, free, wanted).numas()
    free_cpus = {numa: len(machine.numas[numa] & free) for numa in numas}
    groups_wanted = _ceil(wanted, group)
    fewest = _ceil(groups_wanted, _ceil(_ceil(len(machine.cpus), group), len(machine.numas)))
    for count in range(fewest, min(groups_wanted, len(numas)) + 1):
        shares = _best_shares(numas, count, free_cpus, wanted, group)
        if shares is None:
            continue
        left, taken = free, frozenset[int]()
        for numa, share in shares:
            part = _Packing(machine, machine.numas[numa] & left, share).pack(Taking(over_cores=how.over_cores))
            taken, left = taken | part, left - part
        return taken
    return None


_Shares = list[tuple[int, int]]


def _best_shares(
    numas: Sequence[int], count: int, free_cpus: Mapping[int, int], wanted: int, group: int
) -> _Shares | None:
    """Return (NUMA node, CPUs) in the order they are taken, such that free CPUs are most even afterwards."""
    best: tuple[float, _Shares] | None = None
    for combo in itertools.combinations(numas, count):
        share = wanted // count // group * group
        if sum(free_cpus[n] // group for n in combo) * group < wanted or any(free_cpus[n] < share for n in combo):
            continue
        after = {n: free_cpus[n] - (share if n in combo else 0) for n in numas}
        balance = _balanced_rest(combo, after, wanted - share * count, group)
        if balance is not None and (best is None or balance[0] < best[0]):
            best = balance[0], [(n, share) for n in combo if share] + balance[1]
            if best[0] == 0:
                break
    return None if best is None else best[1]


def _balanced_rest(
    combo: Sequence[int], after: Mapping[int, int], rest: int, group: int
) -> tuple[float, _Shares] | None:
    """Return how uneven it becomes when the rest goes to the best of the combination's NUMA nodes, and the parts."""
    if not rest:
        return _unevenness(after.values()), []
    best: tuple[float, _Shares] | None = None
    able = [n for n in combo if after[n] >= group]
    for count in range(len(able), 0, -1):
        for subset in itertools.combinations(able, count):
            if sum(after[n] for n in subset) < rest:
                continue
            parts, left = _deal(subset, after, rest, group)
            uneven = _unevenness(left.values())
            if best is None or uneven < best[0]:
                best = uneven, parts
    return best


def _deal(subset: Sequence[int], after: Mapping[int, int], rest: int, group: int) -> tuple[_Shares, dict[int, int]]:
    """Hand out groups of CPUs in turn until nothing is left; return them, and what each NUMA node has then."""
    left = dict(after)
    parts: _Shares = []
    while rest > 0:
        before = rest
        for numa in subset:
            if rest > 0 and left[numa] >= group:
                left[numa] -= group
                rest -= group
                parts.append((numa, group))
        if rest == before:
            break
    return parts, left


def _unevenness(counts: Collection[int]) -> float:
    # Thousandths, as upstream: a difference smaller than that decides nothing.
    mean = round(statistics.fmean(counts), 3)
    return round(math.sqrt(sum((count - mean) ** 2 for count in counts) / len(counts)), 3)


def _ceil(whole: int, part: int) -> int:
    return -(-whole // part)
