"""The CPU manager's static policy: the exclusive hardware threads of Guaranteed pods. Pure.

All other pods share the remaining CPUs; the reserved CPUs are in that pool (not with
strict-cpu-reservation) and never exclusive. Source: kubelet 5.4; KEP-375, KEP-2625 (full-pcpus-only),
KEP-3327 (align-by-socket), KEP-4540 (strict reservation).
"""

from collections.abc import Iterable, Sequence

from kubelet.managers.cpu_assignment import Taking, choose
from kubelet.managers.cpu_topology import CpuTopology, format_cpus
from kubelet.managers.options import NO_CPU_OPTIONS, CpuOptions
from kubelet.managers.topology import Hint, bits, counted_hints, smallest_count


class CpuManager:
    """The CPUs of one node. Invariant: `free` and all allocations are disjoint, and none contains a reserved CPU."""

    def __init__(
        self, machine: CpuTopology, *, options: CpuOptions = NO_CPU_OPTIONS, reserved: int | Sequence[int] = 0
    ) -> None:
        """Take the machine's CPUs. Raises: ValueError when a reserved CPU does not exist.

        `reserved`: the reserved CPUs, or their number: then those that a container would get first.
        """
        self.machine = machine
        self._options = options
        self._how = Taking(
            over_numas=options.distribute_cpus_across_numa,
            over_cores=options.distribute_cpus_across_cores,
            by_cache=options.prefer_align_cpus_by_uncorecache,
            group=machine.threads if options.full_pcpus_only else 1,
        )
        self._numa_count = max(machine.numas, default=0) + 1
        everything = frozenset(machine.cpus)
        chosen = choose(machine, everything, reserved, self._how) if isinstance(reserved, int) else frozenset(reserved)
        if isinstance(chosen, str):
            raise ValueError(f"unable to reserve the required amount of CPUs: {reserved} of {len(everything)}")
        if unknown := chosen - everything:
            raise ValueError(f"reserved CPUs {format_cpus(unknown)} do not exist, there are {format_cpus(everything)}")
        self.reserved = chosen
        self._reserved_cores = machine.siblings(self.reserved)
        self.usable = everything - self.reserved
        self.free = set(self.usable)

    @property
    def shared_cpus(self) -> frozenset[int]:
        """The CPUs of containers without CPUs of their own."""
        return frozenset(self.free) | (frozenset() if self._options.strict_cpu_reservation else self.reserved)

    def _count(self, cpus: Iterable[int]) -> list[int]:
        counts = [0] * self._numa_count
        for cpu in cpus:
            counts[self.machine.cpus[cpu].numa] += 1
        return counts

    def free_and_usable(self, numa: int) -> tuple[int, int]:
        """Return how many CPUs of the NUMA node are free, and how many of its CPUs can be exclusive at all."""
        return self._count(self.free)[numa], self._count(self.usable)[numa]

    def hints(self, requested: int, reusable: frozenset[int] = frozenset()) -> list[Hint]:
        """Return NUMA hints for `requested` exclusive CPUs.

        CPUs in `reusable` count as free, and must be among the chosen ones. The need on an empty machine is
        computed with the reserved CPUs included, as upstream does.
        """
        total = self._count(self.machine.cpus)
        needed = sum(1 << numa for numa in self.machine.numas_of(reusable))
        hints = counted_hints(requested, self._count(self.free | reusable), total, needed)
        if not self._options.align_by_socket:
            return hints
        machine = self.machine
        per_socket = len(machine.numas) // len(machine.sockets)
        fewest = -(-smallest_count(requested, total) // per_socket)
        return [Hint(h.mask, h.is_preferred or len(machine.sockets_of(bits(h.mask or 0))) == fewest) for h in hints]

    def alignment_error(self, requested: int) -> str:
        """Return why the request cannot have whole cores, with full-pcpus-only; "" when it can, or need not.

        Cores of reserved CPUs are not whole. CPUs that the container could reuse are not counted, as upstream.
        """
        if not self._options.full_pcpus_only:
            return ""
        threads = self.machine.threads
        if requested % threads:
            return f"SMT Alignment Error: requested {requested} cpus not multiple cpus per core = {threads}"
        available = len(self.free - self._reserved_cores)
        if requested > available:
            return (
                "SMT Alignment Error: not enough free physical CPUs: "
                f"available physical CPUs = {available}, requested CPUs = {requested}, CPUs per core = {threads}"
            )
        return ""

    def allocate(
        self, requested: int, mask: int | None, reusable: frozenset[int] = frozenset()
    ) -> tuple[int, ...] | str:
        """Take `requested` CPUs, inside `mask` first; return them sorted, or why it cannot be done."""
        pool = frozenset(self.free) | reusable
        inside = pool & self._aligned_cpus(mask) if mask is not None else frozenset()
        first = choose(self.machine, inside, min(requested, len(inside)), self._how)
        if isinstance(first, str):
            return first
        rest = choose(self.machine, pool - first, requested - len(first), self._how)
        if isinstance(rest, str):
            return rest
        self.free -= first | rest
        return tuple(sorted(first | rest))

    def _aligned_cpus(self, mask: int) -> frozenset[int]:
        """Return the CPUs of these NUMA nodes; with align-by-socket, of their sockets."""
        machine = self.machine
        if self._options.align_by_socket:
            return frozenset(cpu for s in machine.sockets_of(bits(mask)) for cpu in machine.sockets[s])
        return frozenset(cpu for numa in bits(mask) for cpu in machine.numas.get(numa, ()))

    def take(self, cpus: Sequence[int]) -> None:
        """Take exactly these CPUs, as a checkpoint has them; they need not be free."""
        self.free -= set(cpus)

    def release(self, cpus: Sequence[int]) -> None:
        """Release these CPUs."""
        self.free |= set(cpus) & self.usable
