"""Attributes that must be equal on, or differ between, the devices of a claim (KEP-4381, KEP-5254). Pure.

An attribute is a set of typed values: one for a plain attribute, several for a list (KEP-5491). Devices match when one
value is common to all of them, and are distinct when no value is on two of them.
Source: dra-core 3.3; upstream
`staging/src/k8s.io/dynamic-resource-allocation/structured/internal/experimental/constraint.go`.
"""

from typing import Protocol

from services.api.kinds.resourceclaim import DeviceConstraint
from services.dra.features import Features
from services.dra.pools import Values


class Constraint(Protocol):
    """One constraint during a search. What was added last is dropped first; `request`: the name without alternative."""

    def add(self, values: Values, request: str) -> bool:
        """Take a device's values in, if they may be beside the others; else change nothing."""

    def drop(self, request: str) -> None:
        """Forget what was taken in last."""


class Matching:
    """The first device decides; after it only devices that share a value with all before."""

    def __init__(self) -> None:
        self._common: list[Values] = []

    def add(self, values: Values, request: str) -> bool:
        """Take the values in, if one of them is on all devices so far."""
        if self._common:
            values = values & self._common[-1]
            if not values:
                return False
        self._common.append(values)
        return True

    def drop(self, request: str) -> None:
        """Forget the latest values."""
        self._common.pop()


class Distinct:
    """No value may be on two devices."""

    def __init__(self) -> None:
        self._seen: list[Values] = []

    def add(self, values: Values, request: str) -> bool:
        """Take the values in, if none of them is on a device so far."""
        if any(values & each for each in self._seen):
            return False
        self._seen.append(values)
        return True

    def drop(self, request: str) -> None:
        """Forget the latest values."""
        self._seen.pop()


class DistinctByRequest:
    """As upstream up to 1.36 does it: of several devices of one request only the latest is remembered, and dropping
    it forgets the request. A, B, A passes for a request of three devices."""

    def __init__(self) -> None:
        self._latest: dict[str, Values] = {}

    def add(self, values: Values, request: str) -> bool:
        """Take the values in, if none of them is on the latest device of any request."""
        if any(values & each for each in self._latest.values()):
            return False
        self._latest[request] = values
        return True

    def drop(self, request: str) -> None:
        """Forget the request's latest values."""
        self._latest.pop(request, None)


def constraint_for(rule: DeviceConstraint, features: Features) -> Constraint:
    """Return a new constraint, to which no device was added."""
    if rule.match_attribute:
        return Matching()
    return DistinctByRequest() if features.distinct_attribute == "upstream" else Distinct()
