"""The CPUs of one node: the core, uncore cache, NUMA node and socket of each hardware thread. Pure.

Ids are those the kernel would give. Source: kubelet 5.3, 5.4; KEP-375; upstream
`pkg/kubelet/cm/cpumanager/topology`.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Cpu(NamedTuple):
    """The place of one hardware thread.

    Ids of cores, caches, NUMA nodes and sockets count through the whole machine.
    """

    core: int
    cache: int
    numa: int
    socket: int


class CpuTopology:
    """A machine's CPUs, by id.

    `threads`: hardware threads per core; `cache_cpus`: the CPUs that share an uncore cache.
    """

    def __init__(self, cpus: dict[int, Cpu]) -> None:
        self.cpus = dict(sorted(cpus.items()))
        self.numas = _groups((cpu.numa, i) for i, cpu in self.cpus.items())
        self.sockets = _groups((cpu.socket, i) for i, cpu in self.cpus.items())
        self.cores = _groups((cpu.core, i) for i, cpu in self.cpus.items())
        self.caches = _groups((cpu.cache, i) for i, cpu in self.cpus.items())
        self.threads = len(self.cpus) // max(1, len(self.cores))
        self.cache_cpus = len(self.cpus) // max(1, len(self.caches))

    def numas_of(self, cpus: Iterable[int]) -> frozenset[int]:
        """Return the NUMA nodes these CPUs are on."""
        return frozenset(self.cpus[cpu].numa for cpu in cpus)

    def sockets_of(self, numas: Iterable[int]) -> frozenset[int]:
        """Return the sockets that these NUMA nodes reach into."""
        wanted = set(numas)
        return frozenset(cpu.socket for cpu in self.cpus.values() if cpu.numa in wanted)

    def siblings(self, cpus: Iterable[int]) -> frozenset[int]:
        """Return these CPUs and all others of their cores."""
        return frozenset(each for cpu in cpus for each in self.cores[self.cpus[cpu].core])


def _groups(pairs: Iterable[tuple[int, int]]) -> dict[int, frozenset[int]]:
    found: dict[int, set[int]] = {}
    for group, cpu in pairs:
        found.setdefault(group, set()).add(cpu)
    return {group: frozenset(found[group]) for group in sorted(found)}


def build_topology(
    cpus_by_numa: Sequence[int], *, threads: int = 1, sockets: int = 0, cores_per_cache: int = 0, adjacent: bool = False
) -> CpuTopology:
    """Return the machine with the given number of hardware threads on each NUMA node.

    `sockets` 0: every NUMA node is a socket; else NUMA nodes, or where there are fewer of them their cores, are
    spread evenly over the sockets. `cores_per_cache` 0: a NUMA node shares one uncore cache. Ids: first the
    first thread of every core, then the second ones, as x86 machines are numbered; with `adjacent` core by
    core, as virtual machines often are. The caller checks that numbers divide evenly.
    """
    cores: list[tuple[int, int, int]] = []  # (cache, numa, socket) of each core
    cache = -1
    numas = len(cpus_by_numa)
    socket_count = sockets or numas
    for numa, count in enumerate(cpus_by_numa):
        on_numa = count // threads
        for place in range(on_numa):
            if place % (cores_per_cache or on_numa) == 0:
                cache += 1
            # Fewer sockets than NUMA nodes: the first part says which; more: the second one, where on the node.
            socket = numa * socket_count // numas + place * (socket_count // numas) // on_numa
            cores.append((cache, numa, socket))
    cpus: dict[int, Cpu] = {}
    for core, (cache_id, numa, socket) in enumerate(cores):
        for thread in range(threads):
            cpu = core * threads + thread if adjacent else thread * len(cores) + core
            cpus[cpu] = Cpu(core, cache_id, numa, socket)
    return CpuTopology(cpus)


CPU_MAX = 8191
"""The highest id: Linux is built for at most 8,192 CPUs (`NR_CPUS`)."""


def parse_cpus(text: str) -> tuple[int, ...]:
    """Return the ids in a text such as `0-3,8`, ascending. Raises: ValueError with the text."""
    ids: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.strip().partition("-")
        if not first.isdigit() or (last and not last.isdigit()) or part.strip().endswith("-"):
            raise ValueError(f"{text!r}: want CPU ids, for example 0-3,8")
        if max(len(first), len(last)) > len(str(CPU_MAX)) or int(last or first) > CPU_MAX:
            raise ValueError(f"{text[:80]!r}: {part[:80]}, want ids of at most {CPU_MAX}")
        if int(last or first) < int(first):
            raise ValueError(f"{text!r}: {part} runs backwards")
        ids.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(ids))


def format_cpus(cpus: Iterable[int]) -> str:
    """Return ids as Linux and Kubernetes write them: `0-3,8`."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
