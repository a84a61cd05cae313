"""The allocator: which devices a pod's claims get on one node. Pure; the first solution wins.

Nothing is scored, so order decides: claims as the pod names them, requests as the claim does, pools by driver and
name, slices by object name, devices as published. For several devices of one request the search goes through
combinations, not permutations.
Source: dra-core 3.2 to 3.4; KEP-4381, KEP-5254 for `distinctAttribute`; upstream
`staging/src/k8s.io/dynamic-resource-allocation/structured`.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from services.api.cel.device_selectors import Selector, SelectorError, SelectorFailure, compile_selector
from services.api.kinds.deviceclass import DeviceClass
from services.api.kinds.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from services.api.kinds.resourceclaim import (
    ALL,
    DEVICES_MAX,
    AllocationResult,
    DeviceAllocationResult,
    DeviceConstraint,
    DeviceRequestAllocationResult,
    DeviceSelector,
    ResourceClaim,
)
from services.dra.pools import Candidate, DeviceId, Pool

Value = tuple[str, int | bool | str]


def attribute_of(candidate: Candidate, name: str) -> Value | None:
    """Return the type and value of a fully named attribute; a driver need not spell its own domain out."""
    domain, _, short = name.rpartition("/")
    found = candidate.device.attributes.get(name)
    if found is None and domain == candidate.offer.driver:
        found = candidate.device.attributes.get(short)
    return found.typed if found is not None else None


@dataclass
class Constraint:
    """One constraint during a search: the values of what has been picked so far, latest last."""

    rule: DeviceConstraint
    values: list[Value] = field(default_factory=list)

    def concerns(self, request: str) -> bool:
        """Whether devices for that request count."""
        return not self.rule.requests or request in self.rule.requests

    def add(self, candidate: Candidate) -> bool:
        """Take the device in, if it may be beside the others; else change nothing."""
        name = self.rule.match_attribute or self.rule.distinct_attribute
        value = attribute_of(candidate, name)
        if value is None:
            return False
        if self.rule.match_attribute:
            if self.values and self.values[0] != value:
                return False
        elif value in self.values:
            return False
        self.values.append(value)
        return True

    def drop(self) -> None:
        """Forget the device taken in last."""
        self.values.pop()


INVALID_POOLS: Final = "invalid resource pools were encountered"
NO_DEVICES: Final = "cannot allocate all claims"


class AllocationError(Exception):
    """The attempt cannot go on; the message says why."""


@dataclass
class Want:
    """One request of a claim. `fixed`: with mode All, the devices it must get, in order."""

    claim: int
    request: str
    class_name: str
    selectors: tuple[Selector, ...]
    count: int
    is_all: bool
    fixed: tuple[Candidate, ...] = ()
    known: dict[DeviceId, bool] = field(default_factory=dict)
    """What the selectors said of a device."""

    def among(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return the devices it may get, of all that the node reaches."""
        return self.fixed if self.is_all else candidates

    def means(self, candidate: Candidate) -> bool:
        """Whether class and request select the device; asked once. Raises: SelectorFailure."""
        found = self.known.get(candidate.id)
        if found is None:
            found = all(selects(candidate.offer.driver, candidate.device) for selects in self.selectors)
            self.known[candidate.id] = found
        return found


class Allocator:
    """For the unallocated claims of one pod, in one attempt. `tries_max`: how often a device is tried per node."""

    def __init__(
        self,
        claims: Sequence[ResourceClaim],
        classes: Callable[[str], DeviceClass | None],
        in_use: Container[DeviceId],
        *,
        tries_max: int | None = None,
    ) -> None:
        self._claims = claims
        self._in_use = in_use
        self._tries_max = tries_max
        self._classes: dict[str, DeviceClass] = {}
        self.missing = ""
        """The first request whose class does not exist, in words; then nothing can be allocated."""
        self._wants = [want for index, claim in enumerate(claims) for want in self._wants_of(index, claim, classes)]

    def _wants_of(self, index: int, claim: ResourceClaim, classes: Callable[[str], DeviceClass | None]) -> list[Want]:
        wants = []
        for each in claim.spec.devices.requests:
            asked = each.exactly
            if asked is None:
                raise AllocationError(f"request {each.name}: alternatives are not supported")
            found = classes(asked.device_class_name)
            if found is None:
                missing = f"request {each.name}: device class {asked.device_class_name} does not exist"
                self.missing = self.missing or missing
                continue
            self._classes[found.metadata.name] = found
            selectors = tuple(_compiled(s) for s in (*found.spec.selectors, *asked.selectors))
            is_all = asked.allocation_mode == ALL
            wants.append(Want(index, each.name, found.metadata.name, selectors, 0 if is_all else asked.count, is_all))
        return wants

    def allocate(self, node_name: str, pools: Sequence[Pool]) -> list[AllocationResult] | str:
        """Return one result a claim, or why there is no solution on this node. Raises: AllocationError."""
        candidates = [each for pool in pools if pool.is_usable for each in pool.candidates]
        try:
            wants = [self._sized(want, pools) for want in self._wants]
            for index, claim in enumerate(self._claims):
                count = sum(want.count for want in wants if want.claim == index)
                if count > DEVICES_MAX:
                    excess = f"number of requested devices {count} exceeds the claim limit of {DEVICES_MAX}"
                    raise AllocationError(f"claim {claim.metadata.key}: {excess}")
            is_possible = all(not want.is_all or want.count for want in wants)
            picks = self._search(wants, candidates, node_name) if is_possible else None
        except SelectorFailure as error:
            raise AllocationError(str(error)) from None
        if picks is None:
            return INVALID_POOLS if any(pool.invalid for pool in pools) else NO_DEVICES
        return [self._result(index, claim, picks, node_name) for index, claim in enumerate(self._claims)]

    def _sized(self, want: Want, pools: Sequence[Pool]) -> Want:
        """Return the request with what All means on this node: every selectable device, free or not."""
        if not want.is_all:
            return want
        for pool in pools:
            if not pool.is_usable:
                state = "invalid" if pool.invalid else "being updated"
                raise AllocationError(
                    f"{self._spelt(want)}: asks for all devices, but resource pool {pool.driver}/{pool.name} "
                    f"is currently {state}"
                )
        fixed = tuple(each for pool in pools for each in pool.candidates if self._means(want, each))
        return replace(want, count=len(fixed), fixed=fixed)

    def _spelt(self, want: Want) -> str:
        return f"claim {self._claims[want.claim].metadata.key}, request {want.request}"

    def _means(self, want: Want, candidate: Candidate) -> bool:
        try:
            return want.means(candidate)
        except SelectorFailure as error:
            name = "/".join(candidate.id)
            raise AllocationError(f"{self._spelt(want)}: selecting device {name}: {error}") from None

    def _search(
        self, wants: Sequence[Want], candidates: Sequence[Candidate], node_name: str
    ) -> list[tuple[Want, Candidate]] | None:
        """Return what each place gets, depth first; None when there is no solution."""
        places = [(want, k) for want in wants for k in range(want.count)]
        constraints = [[Constraint(rule) for rule in claim.spec.devices.constraints] for claim in self._claims]
        picked: dict[DeviceId, None] = {}
        chosen: list[int] = []
        start, tries = 0, 0
        while len(chosen) < len(places):
            want, k = places[len(chosen)]
            among = want.among(candidates)[: k + 1 if want.is_all else None]
            at = max(start, k) if want.is_all else start
            rules = [each for each in constraints[want.claim] if each.concerns(want.request)]
            while at < len(among):
                tries += 1
                if self._tries_max is not None and tries > self._tries_max:
                    raise AllocationError(f"node {node_name}: timed out trying to allocate devices")
                if self._take(want, among[at], picked, rules):
                    break
                at += 1
            if at < len(among):
                chosen.append(at)
                is_same = len(chosen) < len(places) and places[len(chosen)][0] is want
                start = at + 1 if is_same else 0
                continue
            if not chosen:
                return None
            at = chosen.pop()
            start = at + 1
            want, _ = places[len(chosen)]
            del picked[want.among(candidates)[at].id]
            for rule in constraints[want.claim]:
                if rule.concerns(want.request):
                    rule.drop()
        return [(want, want.among(candidates)[at]) for (want, _), at in zip(places, chosen, strict=True)]

    def _take(
        self, want: Want, candidate: Candidate, picked: dict[DeviceId, None], rules: Sequence[Constraint]
    ) -> bool:
        key = candidate.id
        if key in self._in_use or key in picked or not self._means(want, candidate):
            return False
        for index, rule in enumerate(rules):
            if not rule.add(candidate):
                for earlier in rules[:index]:
                    earlier.drop()
                if want.is_all:
                    raise AllocationError(
                        f"{self._spelt(want)}: cannot add device {'/'.join(key)} because a claim "
                        "constraint would not be satisfied"
                    )
                return False
        picked[key] = None
        return True

    def _result(
        self, index: int, claim: ResourceClaim, picks: Sequence[tuple[Want, Candidate]], node_name: str
    ) -> AllocationResult:
        mine = [(want, each) for want, each in picks if want.claim == index]
        results = tuple(
            DeviceRequestAllocationResult(
                request=want.request, driver=each.offer.driver, pool=each.offer.pool.name, device=each.device.name
            )
            for want, each in mine
        )
        config = tuple(self._config(claim, [want for want in self._wants if want.claim == index]))
        devices = DeviceAllocationResult(results=results, config=config)
        return AllocationResult(devices=devices, node_selector=_where([each for _, each in mine], node_name))

    def _config(self, claim: ResourceClaim, wants: Sequence[Want]) -> list[dict[str, Any]]:
        """Return the classes' configuration, each class once, then the claim's own."""
        by_class: dict[str, list[str]] = {}
        for want in wants:
            by_class.setdefault(want.class_name, []).append(want.request)
        every = [want.request for want in wants]
        found = [
            {"source": "FromClass", **_for(requests, every), **config}
            for name, requests in by_class.items()
            for config in self._classes[name].spec.config
        ]
        for config in claim.spec.devices.config:
            named = list(config.get("requests") or ())
            if not named or any(request in every for request in named):
                rest = {name: value for name, value in config.items() if name != "requests"}
                found.append({"source": "FromClaim", **_for(named, every), **rest})
        return found


def _for(requests: Sequence[str], every: Sequence[str]) -> Mapping[str, Any]:
    return {} if not requests or len(requests) == len(every) else {"requests": list(requests)}


def _compiled(selector: DeviceSelector) -> Selector:
    try:
        return compile_selector(selector.expression)
    except SelectorError as error:
        raise AllocationError(f"{selector.expression}: {error}") from None


def _where(candidates: Sequence[Candidate], node_name: str) -> NodeSelector | None:
    """Return where the devices can be used together; None: everywhere."""
    if any(each.offer.node_name for each in candidates):
        only = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node_name,))
        return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(only,)),))
    terms = [
        term
        for each in candidates
        if each.offer.node_selector is not None
        for term in each.offer.node_selector.node_selector_terms
    ]
    if not terms:
        return None
    expressions = dict.fromkeys(each for term in terms for each in term.match_expressions)
    fields = dict.fromkeys(each for term in terms for each in term.match_fields)
    union = NodeSelectorTerm(match_expressions=tuple(expressions), match_fields=tuple(fields))
    return NodeSelector(node_selector_terms=(union,))
