"""The memory of one node: how it is spread over NUMA nodes and page sizes, and what the system keeps. Pure. Bytes.

Huge pages are set apart from the memory a node has: what is left after them and the reservations can be asked for as
`memory`. Source: kubelet 5.4; KEP-1769 (reservedMemory); upstream `getDefaultMachineState`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from services.api.numa import MEMORY, page_size
from services.api.podresources import Amounts
from services.api.quantity import amount


class NodeMemory(msgspec.Struct, frozen=True):
    """By NUMA node and kind: `total` (memory with the huge pages in it), and what of it pods may have."""

    total: tuple[Amounts, ...]
    allocatable: tuple[Amounts, ...]

    def kinds(self) -> dict[str, tuple[int, int]]:
        """Return (total, allocatable) of each kind over all NUMA nodes, memory first."""
        names = dict.fromkeys([MEMORY, *sorted(kind for numa in self.total for kind in numa)])
        return {
            kind: (sum(n.get(kind, 0) for n in self.total), sum(n.get(kind, 0) for n in self.allocatable))
            for kind in names
        }


def spread_memory(
    memory: str,
    shares: Sequence[str],
    hugepages: Mapping[str, str],
    hugepages_by_numa: Sequence[Mapping[str, str]],
    reserved: Mapping[int, Mapping[str, str]],
) -> NodeMemory:
    """Return the node's memory. `shares` and `hugepages_by_numa`: one a NUMA node.

    NUMA nodes that say nothing ("") share evenly what the others leave of `memory`; `hugepages` are shared evenly, page
    by page. Raises: ValueError naming the field and both values when it does not add up.
    """
    totals: list[Amounts] = [{MEMORY: size} for size in _sizes(memory, shares)]
    for kind, text in hugepages.items():
        if any(kind in own for own in hugepages_by_numa):
            raise ValueError(f"hugepages: {kind} is given for the node and for a NUMA node")
        page = _page_size("hugepages", kind)
        pages = _whole_pages("hugepages", kind, text) // page
        for numa, total in enumerate(totals):
            total[kind] = (pages // len(totals) + (numa < pages % len(totals))) * page
    for numa, own in enumerate(hugepages_by_numa):
        for kind, text in own.items():
            totals[numa][kind] = _whole_pages(f"numa[{numa}].hugepages", kind, text)
    return NodeMemory(tuple(totals), tuple(_allocatable(numa, total, reserved) for numa, total in enumerate(totals)))


def _sizes(memory: str, shares: Sequence[str]) -> list[int]:
    total = amount(MEMORY, memory)
    said = {numa: amount(MEMORY, text) for numa, text in enumerate(shares) if text}
    silent = [numa for numa in range(len(shares)) if numa not in said]
    left = total - sum(said.values())
    if left < 0 or (left > 0 and not silent):
        raise ValueError(f"memory: {memory} is {total} bytes, its NUMA nodes have {sum(said.values())} bytes")
    for place, numa in enumerate(silent):
        said[numa] = left // len(silent) + (left % len(silent) if place == 0 else 0)
    return [said[numa] for numa in range(len(shares))]


def _allocatable(numa: int, total: Amounts, reserved: Mapping[int, Mapping[str, str]]) -> Amounts:
    left = dict(total)
    left[MEMORY] -= sum(size for kind, size in total.items() if kind != MEMORY)
    for kind, text in reserved.get(numa, {}).items():
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
