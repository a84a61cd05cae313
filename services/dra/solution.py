"""Result of a search, as the claims' allocations (dra-core 3.4). Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from services.api.kinds.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from services.api.kinds.resourceclaim import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from services.api.seams import Random
from services.dra.capacity import Consumption
from services.dra.pools import Candidate
from services.dra.requests import RequestOption

_NO_VERSION: Final = ~((0xF << 76) | (0x3 << 62))
_VERSION_4: Final = (0x4 << 76) | (0x2 << 62)
ShareIds = Callable[[], str]
"""Function that makes share ids: a new random uid each time."""


def share_ids(random: Random) -> ShareIds:
    """Return a generator of ids from that source; deterministic if the source is."""

    def make() -> str:
        text = f"{random.getrandbits(128) & _NO_VERSION | _VERSION_4:032x}"
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

    return make


@dataclass(frozen=True, slots=True)
class Pick:
    """One device for one request. `consumed`: the share's consumption, for a device that claims share."""

    asked: RequestOption
    candidate: Candidate
    consumed: tuple[Consumption, ...] | None = None


@dataclass(frozen=True, slots=True)
class Solution:
    """Devices for all claims of a pod on one node. `chosen`: the request, or its chosen alternative, by claim and
    request.
    """

    claims: Sequence[ResourceClaim]
    chosen: tuple[tuple[RequestOption, ...], ...]
    picks: tuple[Pick, ...]

    @property
    def alternatives(self) -> tuple[int, ...]:
        """Index of the chosen alternative of each `firstAvailable` request, from 0; the node's score uses it."""
        return tuple(each.alternative for claim in self.chosen for each in claim if each.alternative is not None)

    def allocations(self, node_name: str, share_ids: ShareIds) -> list[AllocationResult]:
        """Return one allocation per claim."""
        return [self._allocation(place, node_name, share_ids) for place in range(len(self.claims))]

    def _allocation(self, place: int, node_name: str, share_ids: ShareIds) -> AllocationResult:
        mine = [pick for pick in self.picks if pick.asked.claim == place]
        config = tuple(_config(self.claims[place], self.chosen[place]))
        devices = DeviceAllocationResult(results=tuple(_result(pick, share_ids) for pick in mine), config=config)
        return AllocationResult(devices=devices, node_selector=_where([p.candidate for p in mine], node_name))


def _result(pick: Pick, share_ids: ShareIds) -> DeviceRequestAllocationResult:
    asked, (driver, pool, name), device = pick.asked, pick.candidate.id, pick.candidate.device
    consumed = pick.consumed
    return DeviceRequestAllocationResult(
        request=asked.full_name,
        driver=driver,
        pool=pool,
        device=name,
        admin_access=asked.admin_access,
        tolerations=asked.tolerations,
        binding_conditions=device.binding_conditions,
        binding_failure_conditions=device.binding_failure_conditions,
        share_id=share_ids() if consumed is not None else None,
        consumed_capacity={each.name: each.text for each in consumed or ()},
    )


def _config(claim: ResourceClaim, chosen: Sequence[RequestOption]) -> list[dict[str, Any]]:
    """Return the classes' configuration, each class once, then the claim's own."""
    by_class: dict[str, list[RequestOption]] = {}
    for option in chosen:
        by_class.setdefault(option.device_class.metadata.name, []).append(option)
    entries = [
        {"source": "FromClass", **_for([each.full_name for each in asked], len(chosen)), **config}
        for asked in by_class.values()
        for config in asked[0].device_class.spec.config
    ]
    satisfied = {name for each in chosen for name in (each.request, each.full_name)}
    for config in claim.spec.devices.config:
        named = list(config.get("requests") or ())
        if not named or not satisfied.isdisjoint(named):
            rest = {name: value for name, value in config.items() if name != "requests"}
            entries.append({"source": "FromClaim", **_for(named, len(chosen)), **rest})
    return entries


def _for(requests: Sequence[str], count: int) -> Mapping[str, Any]:
    """Return the field that names the requests; none for all of them, by upstream's measure: as many as there are."""
    return {} if not requests or len(requests) == count else {"requests": list(requests)}


def _where(candidates: Sequence[Candidate], node_name: str) -> NodeSelector | None:
    """Return where the devices can be used together; None: everywhere."""
    if any(each.node_name or each.device.binds_to_node for each in candidates):
        only = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node_name,))
        return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(only,)),))
    selectors = [each.node_selector for each in candidates]
    terms = [term for each in selectors if each is not None for term in each.node_selector_terms]
    fields = _union(each for term in terms for each in term.match_fields)
    expressions = _union(each for term in terms for each in term.match_expressions)
    if not fields and not expressions:
        return None
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=expressions, match_fields=fields),))


def _union(requirements: Iterable[NodeSelectorRequirement]) -> tuple[NodeSelectorRequirement, ...]:
    """Return the requirements, each once; the order of its values does not make another one."""
    found: dict[tuple[str, str, frozenset[str]], NodeSelectorRequirement] = {}
    for each in requirements:
        found.setdefault((each.key, each.operator, frozenset(each.values)), each)
    return tuple(found.values())
