"""Azure's trace for packing of 2020: a SQLite database of VM requests, and of VM types' shares of a machine type.

One machine type is the shape of all nodes; a request whose type does not run there is left out and counted. The
trace does not say how many machines there were: without `nodes` there are as many as the greatest sum of cpu or
memory needs.
Its columns: Azure/AzurePublicDataset, `AzureTracesForPacking2020.md`. Source: simulator 10.
"""

from __future__ import annotations

import heapq
import math
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Final

from lab.exchange.format import Format, Reading
from lab.exchange.reading import Source
from lab.exchange.stream import Change, Origin, Placed, Refused, Stream
from lab.exchange.traces.public import (
    PART_OPTIONS,
    Part,
    label_of,
    name_of,
    node,
    pod,
    pod_creation,
    priority_class,
    quantity,
    scale_of,
)

DAY_S: Final = 86_400.0
SCALE: Final = "cpu=64,memory=256Gi"
PODS_PER_NODE: Final = "1000"
PARTS: Final = 1000
"""Number of parts that a machine offers of its discs and of its network, which requests take shares of."""
TENANT, TYPE, MACHINE = "keplab.dev/tenant", "keplab.dev/vm-type", "keplab.dev/machine-type"
CLASSES: Final = {0: ("high", 1000), 1: ("low", 0)}
_REQUESTS: Final = ("vmId", "tenantId", "vmTypeId", "priority", "starttime", "endtime")
_TYPES: Final = ("id", "vmTypeId", "machineId", "core", "memory", "hdd", "ssd", "nic")
SOURCE: Final = (
    "Azure Trace for Packing 2020, github.com/Azure/AzurePublicDataset, CC-BY. Cite: Hadary et al., Protean: VM "
    "Allocation Service at Scale, OSDI 2020."
)


def _fits(head: bytes) -> bool:
    return head.startswith(b"SQLite format 3\0") and b"vmTypeId" in head


class _Reader:
    """One reading of the file. `_database` is open as long as the stream is read."""

    def __init__(self, source: Source, reading: Reading) -> None:
        self._file, self.notes = source.file, dict[str, int]()
        self._part = Part.of(reading.options, source.file)
        self._scale = scale_of(reading.options.get("scale", SCALE), source.file)
        self._nodes = reading.options.get("nodes", "")
        if self._nodes and not (self._nodes.isdigit() and 0 < int(self._nodes) <= 100_000):
            raise Refused(f"{source.file}: nodes {self._nodes}: want a number from 1 to 100,000")
        try:
            self._database = sqlite3.connect(f"file:{source.path}?mode=ro", uri=True)
            self._vms = self._table(_REQUESTS)
            self._types = self._table(_TYPES)
            self._machine = self._machine_id(reading.options.get("machine", ""))
        except sqlite3.Error as error:
            raise Refused(f"{source.file}: {error}; a compressed database must be uncompressed first") from None

    def _table(self, columns: tuple[str, ...]) -> str:
        """Return the name of the table that has these columns. Raises: Refused."""
        names = [name for (name,) in self._database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in names:
            quoted = name.replace('"', '""')
            has = {row[1].lower() for row in self._database.execute(f'PRAGMA table_info("{quoted}")')}
            if has.issuperset(each.lower() for each in columns):
                return f'"{quoted}"'
        raise Refused(f"{self._file}: no table has {', '.join(columns)}; there are {', '.join(names) or 'none'}")

    def _machine_id(self, machine: str) -> Any:
        known = [each for (each,) in self._database.execute(f"SELECT DISTINCT machineId FROM {self._types} ORDER BY 1")]
        if machine and machine not in map(str, known):
            raise Refused(f"{self._file}: machine {machine}: want one of {', '.join(map(str, known))}")
        if not machine:
            row = self._database.execute(
                f"SELECT machineId FROM {self._types} GROUP BY machineId "
                "ORDER BY count(DISTINCT vmTypeId) DESC, machineId"
            ).fetchone()
            if row is None:
                raise Refused(f"{self._file}: the table of VM types is empty")
            self.notes[f"of {len(known)} types of machine: {row[0]} is taken, on which most VM types run (machine)"] = 1
            return row[0]
        return next(each for each in known if str(each) == machine)

    def _shapes(self) -> dict[Any, tuple[float, ...]]:
        found = self._database.execute(
            f"SELECT vmTypeId, core, memory, hdd, ssd, nic FROM {self._types} WHERE machineId = ?", (self._machine,)
        )
        return {each: tuple(self._shares(each, shares)) for each, *shares in found}

    def _shares(self, vm_type: Any, shares: Sequence[Any]) -> Iterator[float]:
        for name, share in zip(_TYPES[3:], shares, strict=True):
            if share is not None and not (isinstance(share, int | float) and 0 <= share <= 1):
                raise Refused(f"{self._file}: VM type {vm_type}: {name} {share!r}: want a share of a machine, 0 to 1")
            yield float(share or 0)

    def _count(self, what: str) -> None:
        self.notes[what] = self.notes.get(what, 0) + 1

    def _requests(
        self, *, is_counted: bool
    ) -> Iterator[tuple[float, float | None, tuple[Any, ...], tuple[float, ...]]]:
        shapes = self._shapes()
        count = self._count if is_counted else lambda what: None
        rows = self._database.execute(f"SELECT {', '.join(_REQUESTS)} FROM {self._vms} ORDER BY starttime, vmId")
        for row in rows:
            _, tenant, vm_type, _, start, end = row
            if not isinstance(start, int | float) or (end is not None and not isinstance(end, int | float)):
                raise Refused(f"{self._file}: vm {row[0]}: starttime {start!r}, endtime {end!r}: want days")
            if end is not None and end < start:
                raise Refused(f"{self._file}: vm {row[0]}: endtime {end}: want starttime {start} or later")
            if not self._part.has(str(tenant)):
                count("requests of tenants that are not in the sample")
            elif vm_type not in shapes:
                count(f"requests of a VM type that does not run on machine {self._machine}")
            else:
                begins, ends = start * DAY_S, None if end is None else end * DAY_S
                placed = self._part.place_run(begins, begins, ends)
                if placed is None:
                    count("requests outside the window of time")
                else:
                    yield placed[0], placed[1], row, shapes[vm_type]

    def objects(self) -> Iterator[Placed]:
        """Yield the nodes and the classes."""
        count = int(self._nodes) if self._nodes else self._machine_count()
        if not self._nodes:
            self.notes[f"machines are assumed: the least that cpu and memory ask for at once is {count} (nodes)"] = 1
        cpu, memory = self._scale
        parts = {f"keplab.dev/{name}": str(PARTS) for name in ("hdd", "ssd", "nic")}
        resources = {
            "cpu": quantity(cpu * 1000, milli=True),
            "memory": quantity(memory),
            "pods": PODS_PER_NODE,
            **parts,
        }
        width = len(str(count))
        for index in range(count):
            labels = {MACHINE: label_of(str(self._machine))}
            yield Placed(node(f"machine-{index:0{width}}", resources, labels), self._file)
        for name, value in CLASSES.values():
            yield Placed(priority_class(name, value), self._file)

    def _machine_count(self) -> int:
        """Return how many machines the greatest sum of cpu or memory fills."""
        ends: list[tuple[float, tuple[float, ...]]] = []
        cpu = memory = most = 0.0
        for at_s, run_s, _, shape in self._requests(is_counted=False):
            while ends and ends[0][0] <= at_s:
                _, gone = heapq.heappop(ends)
                cpu, memory = cpu - gone[0], memory - gone[1]
            cpu, memory = cpu + shape[0], memory + shape[1]
            most = max(most, cpu, memory)
            heapq.heappush(ends, (math.inf if run_s is None else at_s + run_s, shape))
        return min(max(math.ceil(most - 1e-9), 1), 100_000)

    def changes(self) -> Iterator[Change]:
        """Yield the pods, by time."""
        with closing(self._database):
            for at_s, run_s, row, shape in self._requests(is_counted=True):
                vm, tenant, vm_type, priority, _, _ = row
                limits = {
                    f"keplab.dev/{name}": str(math.ceil(share * PARTS - 1e-9))
                    for name, share in zip(("hdd", "ssd", "nic"), shape[2:], strict=True)
                    if share > 0
                }
                requests = {
                    "cpu": quantity(shape[0] * self._scale[0] * 1000, milli=True),
                    "memory": quantity(shape[1] * self._scale[1]),
                }
                labels = {TENANT: label_of(str(tenant)), TYPE: label_of(str(vm_type))}
                name = CLASSES[1 if priority == 1 else 0][0]
                document = pod(
                    name_of("vm", vm), run_s, requests, labels=labels, limits=limits, priority_class_name=name
                )
                yield pod_creation(at_s, document, f"{self._file}:vm {vm}")


def _read(source: Source, reading: Reading) -> Stream:
    if source.data is not None:
        raise Refused(f"{source.file}: a SQLite database must be a file of its own")
    reader = _Reader(source, reading)
    return Stream(reader.objects(), reader.changes(), Origin("azure"), notes=reader.notes)


FORMAT = Format(
    name="azure",
    title="Azure's trace for packing of 2020",
    fits=_fits,
    read=_read,
    has_changes=True,
    options=(*PART_OPTIONS, "scale", "machine", "nodes"),
    source=SOURCE,
    is_virtual=True,
)
