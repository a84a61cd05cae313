"""Which devices a node reaches: pools of slices, complete or not. Pure.

A driver changes a pool by publishing slices of a higher generation; until all of them are there nothing may be
allocated from it, because what is free cannot be known.
Source: dra-core 3.1; upstream `staging/src/k8s.io/dynamic-resource-allocation/structured/internal`, `GatherPools`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.api.kinds.node import Node
from services.api.kinds.resourceslice import Device, ResourceSlice, ResourceSliceSpec
from services.api.node_selection import is_met

DeviceId = tuple[str, str, str]
"""`(driver, pool, device)`."""
PoolId = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A device in the slice that offers it."""

    offer: ResourceSliceSpec
    device: Device

    @property
    def id(self) -> DeviceId:
        """Which device in the whole cluster."""
        return self.offer.driver, self.offer.pool.name, self.device.name


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool as one node reaches it. `invalid`: why nothing of it can be used, "" when it can."""

    driver: str
    name: str
    candidates: tuple[Candidate, ...]
    is_complete: bool = True
    invalid: str = ""

    @property
    def is_usable(self) -> bool:
        """Whether devices may be taken from it."""
        return self.is_complete and not self.invalid


class Slices:
    """All slices, by object name, sorted for the question which of them a node reaches."""

    def __init__(self, slices: Iterable[ResourceSlice]) -> None:
        self._shared: list[ResourceSlice] = []
        self._by_node: dict[str, list[ResourceSlice]] = {}
        self._by_pool: dict[PoolId, list[ResourceSlice]] = {}
        for each in sorted(slices, key=lambda each: each.metadata.name):
            spec = each.spec
            if spec.node_name:
                self._by_node.setdefault(spec.node_name, []).append(each)
            else:
                self._shared.append(each)
            self._by_pool.setdefault((spec.driver, spec.pool.name), []).append(each)

    def of_node(self, node: Node) -> list[Pool]:
        """Return the pools that the node reaches, by driver and name; obsolete ones are left out."""
        near: dict[PoolId, list[ResourceSlice]] = {}
        for each in (*self._by_node.get(node.metadata.name, ()), *(s for s in self._shared if _reaches(s, node))):
            near.setdefault((each.spec.driver, each.spec.pool.name), []).append(each)
        pools = (self._pool(key, near[key]) for key in sorted(near))
        return [pool for pool in pools if pool is not None]

    def _pool(self, key: PoolId, slices: list[ResourceSlice]) -> Pool | None:
        newest = max(each.spec.pool.generation for each in slices)
        slices = sorted((s for s in slices if s.spec.pool.generation == newest), key=lambda s: s.metadata.name)
        wanted = slices[0].spec.pool.resource_slice_count
        is_complete = len(slices) == wanted
        if not is_complete:
            # The rest may be for other nodes; or there is a newer generation, for other nodes only.
            everywhere = [each.spec.pool.generation for each in self._by_pool[key]]
            if max(everywhere) > newest:
                return None
            is_complete = everywhere.count(newest) == wanted
        candidates = tuple(Candidate(each.spec, device) for each in slices for device in each.spec.devices)
        return Pool(*key, candidates, is_complete, _problem(candidates) if is_complete else "")


def _reaches(each: ResourceSlice, node: Node) -> bool:
    selector, meta = each.spec.node_selector, node.metadata
    return each.spec.all_nodes or (
        selector is not None and any(is_met(term, meta.name, meta.labels) for term in selector.node_selector_terms)
    )


def _problem(candidates: Sequence[Candidate]) -> str:
    seen: dict[str, None] = {}
    for each in candidates:
        if each.device.name in seen:
            return f"duplicate device name {each.device.name}"
        seen[each.device.name] = None
    return ""
