"""The memory manager's static policy: NUMA nodes of Guaranteed containers' memory and huge pages. Pure.

The manager gives a container all its kinds of memory from one set of NUMA nodes. A NUMA node that serves
containers alone serves no container together with others, and a group of NUMA nodes serves containers only
as that group. Source: kubelet 5.4; KEP-1769; upstream `pkg/kubelet/cm/memorymanager/policy_static.go`.
"""

from collections.abc import Iterable, Mapping, Sequence

from kubelet.managers.allocation import Block
from kubelet.managers.topology import Hint, bits, masks
from services.api.podresources import Amounts


class Reusable:
    """Memory of a pod's plain init containers that its next containers may reuse, by NUMA nodes and kind. Bytes."""

    def __init__(self) -> None:
        self._sizes: dict[tuple[int, str], int] = {}

    def get(self, mask: int, kind: str) -> int:
        """Return the reusable bytes of that kind from exactly these NUMA nodes."""
        return self._sizes.get((mask, kind), 0)

    def record_use(self, blocks: Iterable[Block], *, is_init: bool) -> None:
        """Count blocks that a container got: an init container leaves them to the next, any other uses them up."""
        for block in blocks:
            where = sum(1 << numa for numa in block.numas), block.kind
            before = self._sizes.get(where, 0)
            self._sizes[where] = max(before, block.size) if is_init else max(0, before - block.size)


class MemoryManager:
    """The memory of one node's NUMA nodes. Invariant: `0 <= free <= allocatable` for every NUMA node and kind. Bytes.

    `groups[i]`: the NUMA nodes that serve containers together with node i, itself included.
    """

    def __init__(self, allocatable: Sequence[Mapping[str, int]]) -> None:
        self.allocatable: list[Amounts] = [dict(kinds) for kinds in allocatable]
        self.free: list[Amounts] = [dict(kinds) for kinds in allocatable]
        self.groups: list[tuple[int, ...]] = [(numa,) for numa in range(len(allocatable))]
        self._uses = [0] * len(allocatable)

    def hints(self, requested: Amounts, reusable: Reusable) -> dict[str, list[Hint]]:
        """Return the same NUMA hints for every requested kind; an empty dict when no set has enough."""
        found = self._hints(requested, reusable)
        return dict.fromkeys(requested, found) if found else {}

    def _hints(self, requested: Amounts, reusable: Reusable) -> list[Hint]:
        smallest = len(self.free)
        hint_masks: list[int] = []
        for mask in masks(len(self.free)):
            ids = bits(mask)
            if any(_sum(self.allocatable, ids, kind) < size for kind, size in requested.items()):
                continue
            smallest = min(smallest, len(ids))
            if self._may_serve(ids) and all(
                _sum(self.free, ids, kind) + reusable.get(mask, kind) >= size for kind, size in requested.items()
            ):
                hint_masks.append(mask)
        return [Hint(mask, mask.bit_count() == smallest) for mask in hint_masks]

    def _may_serve(self, ids: Sequence[int]) -> bool:
        """Whether a container may have memory from these together: no container has some of them otherwise."""
        if len(ids) == 1:
            return len(self.groups[ids[0]]) == 1
        return all(not self._uses[i] or (len(self.groups[i]) > 1 and self.groups[i] == tuple(ids)) for i in ids)

    def allocate(self, requested: Amounts, hint: Hint, reusable: Reusable) -> tuple[Block, ...] | str:
        """Take the memory, from the hint's NUMA nodes or a set around them; return it, or why it cannot be done."""
        chosen = self._choose_hint(requested, hint, reusable)
        if isinstance(chosen, str):
            return chosen
        assert chosen.mask is not None
        ids = bits(chosen.mask)
        if len(ids) > 1 and not self._may_serve(ids):
            return "[memorymanager] preferred hint violates NUMA node allocation"
        blocks = tuple(Block(tuple(ids), kind, size) for kind, size in requested.items())
        for block in blocks:
            self._take(block, max(0, block.size - reusable.get(chosen.mask, block.kind)))
        return blocks

    def _choose_hint(self, requested: Amounts, hint: Hint, reusable: Reusable) -> Hint | str:
        best = hint
        if hint.mask is None:
            offered = self._hints(requested, reusable)
            if not offered:
                return (
                    "[memorymanager] failed to get the default NUMA affinity, "
                    "no NUMA nodes with enough memory is available"
                )
            best = _best(offered)
            if hint.is_preferred and not best.is_preferred:
                return "[memorymanager] failed to find the default preferred hint"
        assert best.mask is not None
        mask = best.mask
        if all(_sum(self.free, bits(mask), kind) >= size for kind, size in requested.items()):
            return best
        # The merge of all providers' hints may have left less than this container needs: widen it to a hint of ours.
        around = [h for h in self._hints(requested, reusable) if h.mask is not None and h.mask & mask == mask]
        if not around:
            return "[memorymanager] failed to find NUMA nodes to extend the current topology hint"
        wider = _best(around)
        if best.is_preferred and not wider.is_preferred:
            return "[memorymanager] failed to find the extended preferred hint"
        return wider

    def _take(self, block: Block, size: int) -> None:
        """Count the block, and take `size` of it from its NUMA nodes in order."""
        for numa in block.numas:
            self._uses[numa] += 1
            self.groups[numa] = block.numas
            free = self.free[numa]
            part = min(size, free.get(block.kind, 0))
            if part:
                free[block.kind] -= part
                size -= part

    def take(self, blocks: Iterable[Block]) -> None:
        """Take exactly these blocks, as a checkpoint has them, as far as the NUMA nodes still exist and have them."""
        for block in blocks:
            if all(numa < len(self.free) for numa in block.numas):
                self._take(block, block.size)

    def release(self, blocks: Iterable[Block]) -> None:
        """Release these blocks."""
        for block in blocks:
            if any(numa >= len(self.free) for numa in block.numas):
                continue
            size = block.size
            for numa in block.numas:
                self._uses[numa] -= 1
                if not self._uses[numa]:
                    self.groups[numa] = (numa,)
                taken = self.allocatable[numa].get(block.kind, 0) - self.free[numa].get(block.kind, 0)
                part = min(size, taken)
                if part:
                    self.free[numa][block.kind] += part
                    size -= part


def without_reused(inits: Sequence[Block], blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Return the plain init containers' blocks without those that a later container reused.

    So nothing counts twice.
    """
    left = list(inits)
    for block in blocks:
        size = block.size
        for place, init in enumerate(left):
            if size and init.kind == block.kind and init.numas == block.numas:
                part = min(size, init.size)
                left[place] = Block(init.numas, init.kind, init.size - part)
                size -= part
    return tuple(left)


def _sum(tables: Sequence[Amounts], ids: Iterable[int], kind: str) -> int:
    return sum(tables[i].get(kind, 0) for i in ids)


def _best(hints: Sequence[Hint]) -> Hint:
    """Return the preferred one with the fewest and lowest NUMA nodes."""
    return min(hints, key=lambda hint: (not hint.is_preferred, (hint.mask or 0).bit_count(), hint.mask or 0))
