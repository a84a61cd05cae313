"""Requests of claims, checked and prepared for the search. Pure.

An alternative of `firstAvailable` is a request like any other, marked as an alternative.
Source: dra-core 3.2; upstream
`staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating/allocator_incubating.go`,
`validateDeviceRequest`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from services.api.kinds.deviceclass import DeviceClass
from services.api.kinds.resourceclaim import (
    ALL,
    EXACT_COUNT,
    DeviceConstraint,
    DeviceRequest,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
)
from services.dra.capacity import Consumption, consumption_of
from services.dra.features import Features
from services.dra.pools import Candidate, Content

FindClass = Callable[[str], DeviceClass | None]


class AllocationError(Exception):
    """Error that ends the allocation attempt; the message says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Selectors:
    """Selector expressions of a class and a request, in evaluation order; equal ones are the same object."""

    of_class: tuple[str, ...]
    of_request: tuple[str, ...]
    missing_is_no: bool
    """Whether a read of an unpublished attribute means "no match" instead of an error."""

    def select(self, content: Content) -> "bool | Failure":
        """Return whether the device matches, or the expression that failed. Evaluated once per content."""
        found: bool | Failure | None = content.memo.get(self)
        if found is None:
            found = self._ask(content)
            content.remember(self, found)
        return found

    def _ask(self, content: Content) -> "bool | Failure":
        # Only here: a scheduler whose claims select nothing need not load CEL.
        from services.cel.device_selectors import AttributeMissing, SelectorError, SelectorFailure, compile_selector

        for is_class, expressions in ((True, self.of_class), (False, self.of_request)):
            for index, expression in enumerate(expressions):
                kind = "compile"
                try:
                    selector = compile_selector(expression)
                    kind = "runtime"
                    if not selector(content.driver, content.device):
                        return False
                except (SelectorError, SelectorFailure) as error:
                    if self.missing_is_no and isinstance(error, AttributeMissing):
                        return False
                    return Failure(is_class, f"selector #{index}: CEL {kind} error: {error}")
        return True


@dataclass(frozen=True, slots=True)
class Failure:
    """An expression, of the class or of the request, that failed."""

    is_class: bool
    text: str


@lru_cache(maxsize=4096)
def selectors_of(of_class: tuple[str, ...], of_request: tuple[str, ...], missing_is_no: bool) -> Selectors:
    """Return the shared object for these expressions."""
    return Selectors(of_class, of_request, missing_is_no)


@dataclass(frozen=True, slots=True, eq=False)
class RequestOption:
    """One request, or one alternative of it. `claim`, `index`: indexes of claim and request; `alternative`: the
    index among the alternatives, None for a plain request.

    `full_name`: the name in results, `request` or `request/alternative`; `own_name`: the name in messages.
    """

    claim: int
    index: int
    alternative: int | None
    request: str
    own_name: str
    full_name: str
    device_class: DeviceClass
    selectors: Selectors
    count: int
    is_all: bool
    admin_access: bool
    tolerations: tuple[DeviceToleration, ...]
    capacity: Mapping[str, str]
    capacity_key: tuple[tuple[str, str], ...]
    rules: tuple[int, ...]
    """Indexes of the claim's constraints that apply to the request."""

    def consumption(self, content: Content) -> tuple[Consumption, ...] | None:
        """Return the consumption of a share of the device; None if the device cannot serve the request at all."""
        key = self.capacity_key
        if key not in content.memo:
            content.remember(key, consumption_of(content.device.capacity, content.driver, self.capacity))
        found: tuple[Consumption, ...] | None = content.memo[key]
        return found

    def selects(self, candidate: Candidate, claim: ResourceClaim) -> bool:
        """Whether class and request match the device and the node reaches it. Raises: AllocationError."""
        found = self.selectors.select(candidate.content)
        if isinstance(found, Failure):
            whose = f"class {self.device_class.metadata.name}" if found.is_class else f"claim {claim.metadata.key}"
            raise AllocationError(f"{whose}: {found.text}")
        return found and candidate.is_reached


def problem_of_requests(claim: ResourceClaim, classes: FindClass, features: Features) -> str:
    """Return why no node can satisfy the claim, in the words of upstream's PreFilter; empty if there is no problem.

    The problem is a request of an unsupported type, or a class that does not exist.
    """
    for request in claim.spec.devices.requests:
        whose = f"resource claim {claim.metadata.key}, request {request.name}"
        parts: Sequence[ExactDeviceRequest | DeviceSubRequest]
        parts = [request.exactly] if request.exactly is not None else request.first_available
        if not parts:
            return f"{whose}: unknown request type"
        if request.exactly is None and not features.prioritized_list:
            return f"{whose}: has subrequests, but the DRAPrioritizedList feature is disabled"
        for part in parts:
            if classes(part.device_class_name) is None:
                name = f"{request.name}/{part.name}" if isinstance(part, DeviceSubRequest) else request.name
                return f"request {name}: device class {part.device_class_name} does not exist"
    return ""


def asked_by(
    place: int, claim: ResourceClaim, request_place: int, classes: FindClass, features: Features
) -> tuple[RequestOption, ...]:
    """Return a request of a claim: one entry, or one per alternative. Raises: AllocationError."""
    request = claim.spec.devices.requests[request_place]
    _check_features(claim, request, features)
    parts: Sequence[ExactDeviceRequest | DeviceSubRequest] = request.first_available
    if not parts:
        if request.exactly is None:
            raise AllocationError(
                f"claim {claim.metadata.key}, request {request.name}: missing device class name "
                "(unsupported request type?)"
            )
        parts = [request.exactly]
    constraints = claim.spec.devices.constraints
    return tuple(
        _request_option(place, claim, request_place, k, part, classes, constraints, features)
        for k, part in enumerate(parts)
    )


def _request_option(
    place: int,
    claim: ResourceClaim,
    request_place: int,
    k: int,
    part: ExactDeviceRequest | DeviceSubRequest,
    classes: FindClass,
    constraints: Sequence[DeviceConstraint],
    features: Features,
) -> RequestOption:
    request = claim.spec.devices.requests[request_place].name
    is_alternative = isinstance(part, DeviceSubRequest)
    own = part.name if isinstance(part, DeviceSubRequest) else request
    whose = f"claim {claim.metadata.key}, request {own}"
    for index, selector in enumerate(part.selectors):
        if selector.cel is None:
            raise AllocationError(f"{whose}, selector #{index}: CEL expression empty (unsupported selector type?)")
    device_class = classes(part.device_class_name)
    if device_class is None:
        missing = f'deviceclass.resource.k8s.io "{part.device_class_name}" not found'
        raise AllocationError(f"{whose}: could not retrieve device class {part.device_class_name}: {missing}")
    if part.allocation_mode not in (EXACT_COUNT, ALL):
        raise AllocationError(f"{whose}: unsupported count mode {part.allocation_mode}")
    full = f"{request}/{own}" if is_alternative else request
    capacity = part.capacity.requests if part.capacity is not None else {}
    is_all = part.allocation_mode == ALL
    rules = tuple(
        index
        for index, rule in enumerate(constraints)
        if not rule.requests or request in rule.requests or full in rule.requests
    )
    return RequestOption(
        claim=place,
        index=request_place,
        alternative=k if is_alternative else None,
        request=request,
        own_name=own,
        full_name=full,
        device_class=device_class,
        selectors=selectors_of(
            tuple(each.expression for each in device_class.spec.selectors),
            tuple(each.expression for each in part.selectors),
            features.cel_missing_key == "false",
        ),
        count=0 if is_all else part.count,
        is_all=is_all,
        admin_access=isinstance(part, ExactDeviceRequest) and part.admin_access,
        tolerations=part.tolerations,
        capacity=capacity,
        capacity_key=tuple(sorted(capacity.items())),
        rules=rules,
    )


def _check_features(claim: ResourceClaim, request: DeviceRequest, features: Features) -> None:
    key, exactly = claim.metadata.key, request.exactly
    if request.first_available and not features.prioritized_list:
        raise AllocationError(
            f"claim {key}, request {request.name}: has subrequests, but the DRAPrioritizedList feature is disabled"
        )
    if not features.consumable_capacity:
        disabled = "has capacity requests, but the DRAConsumableCapacity feature is disabled"
        if exactly is not None and exactly.capacity is not None:
            raise AllocationError(f"claim {key}, request {request.name}: {disabled}")
        for subrequest in request.first_available:
            if subrequest.capacity is not None:
                raise AllocationError(f"claim {key}, subrequest {subrequest.name}: {disabled}")
    if exactly is not None and exactly.admin_access and not features.admin_access:
        raise AllocationError(
            f"claim {key}, request {request.name}: admin access is requested, but the feature is disabled"
        )
