"""The machine in a node's definition, and its resource managers: CPUs, NUMA nodes, memory.

Source: kubelet 5.3, 5.4; upstream `KubeletConfiguration` (`staging/src/k8s.io/kubelet/config/v1beta1`), its
resources.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from kubelet.managers.cpu_topology import CpuTopology, build_topology, parse_cpus
from kubelet.managers.options import (
    CpuOptions,
    TopologyOptions,
    check_hardware,
    parse_cpu_options,
    parse_topology_options,
)
from services.api.numa import MEMORY, page_size
from services.api.podresources import Amounts
from services.api.quantity import amount, format_amount


class Definition(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of definitions: camelCase on the wire; an unknown field is an error that names it."""


class NumaNode(Definition, frozen=True):
    """One NUMA node: hardware threads, memory (quantity; "" shares the node's evenly), devices by resource.

    `hugepages`: quantities by resource, `{"hugepages-2Mi": "1Gi"}`; they are part of `memory`.
    """

    cpus: int = 0
    memory: str = ""
    devices: dict[str, int] = {}
    hugepages: dict[str, str] = {}


class ReservedMemory(Definition, frozen=True):
    """The memory that the system keeps of one NUMA node, by kind (KubeletConfiguration's `reservedMemory`).

    The values are quantities.
    """

    numa_node: int
    limits: dict[str, str]


class NodeMemory(msgspec.Struct, frozen=True):
    """Bytes by NUMA node and kind: `total` (memory with the huge pages in it), and the part that pods may have.

    Huge pages are set apart from a node's memory: only the rest, without the reservations, can be requested as
    `memory`. Source: kubelet 5.4; KEP-1769 (reservedMemory); upstream `getDefaultMachineState`.
    """

    total: tuple[Amounts, ...]
    allocatable: tuple[Amounts, ...]

    def kinds(self) -> dict[str, tuple[int, int]]:
        """Return (total, allocatable) of each kind over all NUMA nodes, memory first."""
        names = dict.fromkeys([MEMORY, *sorted(kind for numa in self.total for kind in numa)])
        return {
            kind: (sum(n.get(kind, 0) for n in self.total), sum(n.get(kind, 0) for n in self.allocatable))
            for kind in names
        }


class MachineDefinition(Definition, frozen=True):
    """A machine and its managers. Quantities are text.

    `numa` may be written `2x8` (two NUMA nodes of eight CPUs). `cpu_policy` "" means static when there is a
    topology policy, else none. `distances[i][j]` are NUMA distances as ACPI gives them; empty means 10 to
    itself and 20 to every other. `full_pcpus_only` and `prefer_closest_numa` are short for the options of these
    names. `sockets`, `cores_per_cache` (that share an uncore cache) 0: a NUMA node is a socket, and has one
    cache. `cpu_ids`: split numbers the second threads of all cores after the first ones, as x86 does; adjacent
    numbers core by core. The system keeps `reserved_cpus` CPUs, or exactly `reserved_system_cpus` (`0-1,8`),
    and `reserved_memory`. `hugepages` are shared evenly by the NUMA nodes.
    """

    cpu: str = ""
    memory: str = "32Gi"
    ephemeral_storage: str = "100Gi"
    pods: int = 110
    extended: dict[str, int] = {}
    numa: tuple[NumaNode, ...] = ()
    sockets: int = 0
    cores_per_cache: int = 0
    threads_per_core: int = 1
    cpu_ids: Literal["split", "adjacent"] = "split"
    hugepages: dict[str, str] = {}
    distances: tuple[tuple[int, ...], ...] = ()
    topology_policy: Literal["none", "best-effort", "restricted", "single-numa-node"] = "none"
    topology_scope: Literal["container", "pod"] = "container"
    topology_options: dict[str, str] = {}
    prefer_closest_numa: bool = False
    cpu_policy: Literal["", "none", "static"] = ""
    cpu_options: dict[str, str] = {}
    full_pcpus_only: bool = False
    reserved_cpus: int = 0
    reserved_system_cpus: str = ""
    memory_policy: Literal["None", "Static"] = "None"
    reserved_memory: tuple[ReservedMemory, ...] = ()

    @property
    def cpus(self) -> int:
        """The number of hardware threads: the NUMA nodes' sum, or whole CPUs of `cpu`."""
        return sum(n.cpus for n in self.numa) or amount("cpu", self.cpu or "8") // 1000

    @property
    def cpu_text(self) -> str:
        """The CPU capacity as a quantity."""
        return self.cpu or str(self.cpus)

    def machine(self) -> CpuTopology:
        """Return the topology of the machine's CPUs."""
        return build_topology(
            [n.cpus for n in self.numa] or [self.cpus],
            threads=self.threads_per_core,
            sockets=self.sockets,
            cores_per_cache=self.cores_per_cache,
            adjacent=self.cpu_ids == "adjacent",
        )

    def memory_by_numa(self) -> NodeMemory:
        """Return the memory of each NUMA node, and the part of it that pods may have.

        NUMA nodes without a size ("") share evenly what the others leave of `memory`; `hugepages` are shared
        evenly, page by page. Raises: ValueError naming the field and both values when it does not add up.
        """
        reserved: dict[int, dict[str, str]] = {}
        for reservation in self.reserved_memory:
            known = reserved.setdefault(reservation.numa_node, {})
            if twice := sorted(set(known) & set(reservation.limits)):
                raise ValueError(f"reservedMemory: {twice[0]} of NUMA node {reservation.numa_node} is given twice")
            known.update(reservation.limits)
        numas = self.numa or (NumaNode(),)
        totals: list[Amounts] = [{MEMORY: size} for size in _sizes(self.memory, [numa.memory for numa in numas])]
        for kind, text in self.hugepages.items():
            if any(kind in numa.hugepages for numa in numas):
                raise ValueError(f"hugepages: {kind} is given for the node and for a NUMA node")
            page = _page_size("hugepages", kind)
            pages = _whole_pages("hugepages", kind, text) // page
            for index, total in enumerate(totals):
                total[kind] = (pages // len(totals) + (index < pages % len(totals))) * page
        for index, numa in enumerate(numas):
            for kind, text in numa.hugepages.items():
                totals[index][kind] = _whole_pages(f"numa[{index}].hugepages", kind, text)
        left = (_allocatable(index, total, reserved.get(index, {})) for index, total in enumerate(totals))
        return NodeMemory(tuple(totals), tuple(left))

    def capacity(self) -> dict[str, str]:
        """Return all resources as quantities."""
        extended: Mapping[str, int] = self.extended
        if any(numa.devices for numa in self.numa):
            extended = Counter(extended)
            for numa in self.numa:
                extended.update(numa.devices)
        pages = {} if self._has_plain_memory else self.memory_by_numa().kinds()
        return {
            "cpu": self.cpu_text,
            "memory": self.memory,
            "ephemeral-storage": self.ephemeral_storage,
            "pods": str(self.pods),
            **{kind: format_amount(kind, total) for kind, (total, _) in pages.items() if kind != "memory"},
            **{name: str(count) for name, count in sorted(extended.items())},
        }

    def allocatable(self) -> dict[str, str]:
        """Return the capacity less the system's reservations; huge pages do not count as memory."""
        cpus = self.effective_reserved_cpus
        reserved = cpus if isinstance(cpus, int) else len(cpus)
        amounts = self.capacity()
        amounts["cpu"] = format_amount("cpu", amount("cpu", self.cpu_text) - 1000 * reserved)
        if not self._has_plain_memory:
            amounts |= {kind: format_amount(kind, left) for kind, (_, left) in self.memory_by_numa().kinds().items()}
        return amounts

    @property
    def _has_plain_memory(self) -> bool:
        """Whether there are no huge pages, and nothing is reserved."""
        return not (self.reserved_memory or self.hugepages or any(numa.hugepages for numa in self.numa))

    @property
    def has_static_cpus(self) -> bool:
        """Whether Guaranteed pods with whole CPUs get exclusive ones."""
        return self.cpu_policy == "static" or (self.cpu_policy == "" and self.topology_policy != "none")

    @property
    def all_cpu_options(self) -> dict[str, str]:
        """The CPU policy's options as they were given."""
        return self.cpu_options | ({"full-pcpus-only": "true"} if self.full_pcpus_only else {})

    @property
    def cpu_choices(self) -> CpuOptions:
        """The CPU policy's options."""
        return parse_cpu_options(self.all_cpu_options)

    @property
    def topology_choices(self) -> TopologyOptions:
        """The topology manager's options."""
        short = {"prefer-closest-numa-nodes": "true"} if self.prefer_closest_numa else {}
        return parse_topology_options(self.topology_options | short)

    @property
    def effective_reserved_cpus(self) -> int | tuple[int, ...]:
        """The CPUs that the system keeps: their ids, or their number."""
        return parse_cpus(self.reserved_system_cpus) or self.reserved_cpus

    def check_machine(self) -> None:
        """Raise ValueError when the machine is impossible, or its managers refuse their configuration."""
        amount("cpu", self.cpu_text)
        amount("memory", self.memory)
        amount("ephemeral-storage", self.ephemeral_storage)
        numas = len(self.numa) or 1
        self._check_cores()
        self._check_reserved_cpus()
        check_hardware(
            self.cpu_choices, topology_policy=self.topology_policy, sockets=self.sockets or numas, numa_nodes=numas
        )
        most = self.topology_choices.max_allowable_numa_nodes
        if numas > most and self.topology_policy != "none":
            raise ValueError(
                f"numa: {numas} NUMA nodes, topologyPolicy {self.topology_policy} is unsupported on machines "
                f"with more than {most} NUMA Nodes"
            )
        if self.distances and [len(row) for row in self.distances] != [numas] * numas:
            raise ValueError(
                f"distances: {len(self.distances)} rows for {numas} NUMA nodes, want {numas} of {numas} each"
            )
        self._check_memory(numas)

    def _check_cores(self) -> None:
        threads, per_cache = self.threads_per_core, self.cores_per_cache
        if threads < 1:
            raise ValueError(f"threadsPerCore: {threads}, want at least 1")
        if self.sockets < 0 or per_cache < 0:
            raise ValueError(f"sockets: {self.sockets}, coresPerCache: {per_cache}, want 0 or more")
        counts = [n.cpus for n in self.numa] or [self.cpus]
        for index, cpus in enumerate(counts):
            if cpus % threads:
                raise ValueError(f"numa[{index}].cpus: {cpus}, want a multiple of threadsPerCore {threads}")
            if per_cache and cpus // threads % per_cache:
                raise ValueError(
                    f"numa[{index}]: {cpus // threads} cores, want a multiple of coresPerCache {per_cache}"
                )
        if self.sockets and len(counts) % self.sockets and self.sockets % len(counts):
            raise ValueError(
                f"sockets: {self.sockets} sockets and {len(counts)} NUMA nodes, want one a multiple of the other"
            )

    def _check_reserved_cpus(self) -> None:
        count, text = self.reserved_cpus, self.reserved_system_cpus
        if not 0 <= count <= max(self.cpus, 0):
            raise ValueError(f"reservedCpus: {count} of {self.cpus} CPUs")
        try:
            listed = parse_cpus(text)
        except ValueError as error:
            raise ValueError(f"reservedSystemCpus: {error}") from None
        if listed and count:
            raise ValueError(f"reservedCpus: {count}, and reservedSystemCpus: {text}, want one of them")
        if listed and listed[-1] >= self.cpus:
            raise ValueError(f"reservedSystemCpus: {text}, there are the CPUs 0-{self.cpus - 1}")

    def _check_memory(self, numas: int) -> None:
        for reservation in self.reserved_memory:
            if not 0 <= reservation.numa_node < numas:
                raise ValueError(
                    "reservedMemory: the reserved memory configuration references a NUMA node "
                    f"{reservation.numa_node} that does not exist on this machine, it has {numas}"
                )
        if not self._has_plain_memory or any(numa.memory for numa in self.numa):
            self.memory_by_numa()
        sizes = [amount("memory", each.limits.get("memory", "0")) for each in self.reserved_memory]
        if self.memory_policy == "Static" and sum(sizes) <= 0:
            raise ValueError(
                "memoryPolicy: Static, reservedMemory: no memory; you should specify the system reserved memory"
            )


def _sizes(memory: str, shares: Sequence[str]) -> list[int]:
    total = amount(MEMORY, memory)
    sizes = {numa: amount(MEMORY, text) for numa, text in enumerate(shares) if text}
    silent = [numa for numa in range(len(shares)) if numa not in sizes]
    left = total - sum(sizes.values())
    if left < 0 or (left > 0 and not silent):
        raise ValueError(f"memory: {memory} is {total} bytes, its NUMA nodes have {sum(sizes.values())} bytes")
    for place, numa in enumerate(silent):
        sizes[numa] = left // len(silent) + (left % len(silent) if place == 0 else 0)
    return [sizes[numa] for numa in range(len(shares))]


def _allocatable(numa: int, total: Amounts, reserved: Mapping[str, str]) -> Amounts:
    left = dict(total)
    left[MEMORY] -= sum(size for kind, size in total.items() if kind != MEMORY)
    for kind, text in reserved.items():
        if kind not in total:
            raise ValueError(f"reservedMemory: NUMA node {numa} has no {kind}, {text} of it cannot be reserved")
        left[kind] -= amount(kind, text)
    for kind, size in left.items():
        if size < 0:
            raise ValueError(
                f"numa[{numa}]: {total[kind]} bytes of {kind}, huge pages and reservations take {total[kind] - size}"
            )
    return left


def _whole_pages(field: str, kind: str, text: str) -> int:
    size, page = amount(kind, text), _page_size(field, kind)
    if size < 0 or size % page:
        raise ValueError(f"{field}: {text} of {kind} is {size} bytes, not a multiple of {page}")
    return size


def _page_size(field: str, kind: str) -> int:
    try:
        return page_size(kind)
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from None
