"""Allocation of claims without a pod, each on a random node, as upstream's allocResourceClaims does. Pure.

Source: kubernetes/kubernetes `test/integration/scheduler_perf/dra.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from services.api.kinds.deviceclass import DeviceClass
from services.api.kinds.node import Node
from services.api.kinds.resourceclaim import ResourceClaim
from services.api.kinds.resourceslice import ResourceSlice
from services.api.meta import Document, Key
from services.api.seams import Random
from services.dra.allocated_devices import Allocated
from services.dra.allocator import Allocator
from services.dra.pools import Slices
from services.dra.solution import Solution, share_ids


class NoDevices(Exception):
    """A claim for which no node has devices."""


def allocations(
    claims: Sequence[Document],
    nodes: Sequence[Document],
    slices: Sequence[Document],
    classes: Sequence[Document],
    namespace: str,
    random: Random,
) -> Iterator[tuple[Key, dict[str, Any]]]:
    """Yield the status of each claim in the namespace that has no devices yet; an empty namespace means all.
    Raises: NoDevices.
    """
    known = {each.metadata.name: each for each in (msgspec.convert(document, DeviceClass) for document in classes)}
    offers = Slices(msgspec.convert(document, ResourceSlice) for document in slices)
    views = [msgspec.convert(document, ResourceClaim) for document in claims]
    candidates = [msgspec.convert(document, Node) for document in nodes]
    allocated = Allocated()
    for claim in views:
        allocated.put(claim.metadata.uid, claim.status.allocation)
    ids = share_ids(random)
    for claim in views:
        if claim.status.allocation is not None or (namespace and claim.metadata.namespace != namespace):
            continue
        allocator = Allocator([claim], known.get, allocated)
        first = random.randrange(0, len(candidates)) if candidates else 0
        for node in (*candidates[first:], *candidates[:first]):
            solution = allocator.allocate(node.metadata.name, offers.of_node(node))
            if isinstance(solution, Solution):
                (allocation,) = solution.allocations(node.metadata.name, ids)
                allocated.put(claim.metadata.uid, allocation)
                yield (
                    Key(claim.metadata.namespace, claim.metadata.name),
                    {"allocation": msgspec.json.decode(msgspec.json.encode(allocation))},
                )
                break
        else:
            raise NoDevices(f"no node has devices for claim {claim.metadata.namespace}/{claim.metadata.name}")
