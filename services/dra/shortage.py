"""Reasons why the devices that a node reaches do not satisfy a claim: pool by pool, device by device. Pure.

A search reports only that there is no solution; here each request is checked alone, beside the allocated
devices. So a request may have enough usable devices, and still have no solution together with others, or
because of a constraint.
Source: dra-core 3.1, 3.3.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from services.dra.allocator import Allocator
from services.dra.ids import DeviceId
from services.dra.pools import Candidate, Pool
from services.dra.requests import AllocationError, Failure, RequestOption
from services.dra.taints import is_tolerated

FindHolder = Callable[[DeviceId], str]
"""Name of the claim that holds a device; empty when unknown."""


class Shortage(msgspec.Struct, frozen=True):
    """Shortage of one request of a claim on one node. `wanted`: number of devices, or All. `usable`: number
    available now.

    `refused`: refused devices, `driver/pool/device`, or pools, `driver/pool`, by reason.
    """

    claim: str
    request: str
    device_class: str
    wanted: str
    node: str
    usable: int
    refused: dict[str, list[str]]


def shortages(allocator: Allocator, node_name: str, pools: Sequence[Pool], holder: FindHolder) -> list[Shortage]:
    """Return the shortage of each request of the allocator's claims on a node. Raises: AllocationError."""
    return [
        _shortage(allocator, asked, node_name, pools, holder)
        for place in range(len(allocator.claims))
        for alternatives in allocator.asked_by(place)
        for asked in alternatives
    ]


def _shortage(
    allocator: Allocator, asked: RequestOption, node_name: str, pools: Sequence[Pool], holder: FindHolder
) -> Shortage:
    usable, refused = 0, dict[str, list[str]]()
    for pool in pools:
        if not pool.is_usable:
            state = f"pool is invalid: {pool.invalid}" if pool.invalid else f"pool is incomplete: {pool.missing}"
            refused.setdefault(state, []).append(f"{pool.driver}/{pool.name}")
            continue
        for candidate in pool.candidates:
            reason = next(_against(allocator, asked, candidate, holder), "")
            if reason:
                refused.setdefault(reason, []).append("/".join(candidate.id))
            else:
                usable += 1
    claim = allocator.claims[asked.claim].metadata.key
    wanted = "All" if asked.is_all else str(asked.count)
    return Shortage(str(claim), asked.full_name, asked.device_class.metadata.name, wanted, node_name, usable, refused)


def _against(allocator: Allocator, asked: RequestOption, candidate: Candidate, holder: FindHolder) -> Iterator[str]:
    """Yield what speaks against a device, in the order in which the search asks."""
    selection = asked.selectors.select(candidate.content)
    if isinstance(selection, Failure):
        yield f"{'class' if selection.is_class else 'request'} {selection.text}"
    elif not selection:
        yield "a selector of class or request is false"
    if not candidate.is_reached:
        yield "is on other nodes"
    if not asked.admin_access and candidate.id in allocator.allocated.devices:
        yield f"is allocated to claim {holder(candidate.id) or 'of another pod'}"
    if allocator.features.device_taints:
        for taint in candidate.blocking:
            if not is_tolerated(taint, asked.tolerations):
                yield f"has the taint {taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}"
    try:
        if allocator.fitting(asked, candidate, {}) is None:
            yield "has too little capacity left"
    except AllocationError as error:
        yield str(error)
