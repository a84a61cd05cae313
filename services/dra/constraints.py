"""Attributes that must be equal on, or differ between, the devices of a claim (KEP-4381, KEP-5254). Pure.

An attribute is a set of typed values: one for a plain attribute, several for a list (KEP-5491). Devices match
when they all have one value in common, and are distinct when no value is on two of them.
Source: dra-core 3.3; upstream
`staging/src/k8s.io/dynamic-resource-allocation/structured/internal/experimental/constraint.go`.
"""

from typing import Protocol

from services.api.kinds.resourceclaim import DeviceConstraint
from services.dra.features import Features
from services.dra.pools import Values


class Constraint(Protocol):
    """One constraint during a search. The latest addition is dropped first; `request`: the name without alternative."""

    def add(self, values: Values, request: str) -> bool:
        """Add a device's values and return True if they satisfy the constraint; else change nothing and return
        False.
        """

    def drop(self, request: str) -> None:
        """Drop the latest addition."""


class Matching:
    """Match constraint: each device must share a value with all devices before it."""

    def __init__(self) -> None:
        self._common: list[Values] = []

    def add(self, values: Values, request: str) -> bool:
        """Add the values if one of them is on all devices so far; return whether they were added."""
        if self._common:
            values = values & self._common[-1]
            if not values:
                return False
        self._common.append(values)
        return True

    def drop(self, request: str) -> None:
        """Drop the latest values."""
        self._common.pop()


class Distinct:
    """Distinct constraint: no value may be on two devices."""

    def __init__(self) -> None:
        self._seen: list[Values] = []

    def add(self, values: Values, request: str) -> bool:
        """Add the values if no device so far has one of them; return whether they were added."""
        if any(values & each for each in self._seen):
            return False
        self._seen.append(values)
        return True

    def drop(self, request: str) -> None:
        """Drop the latest values."""
        self._seen.pop()


class DistinctByRequest:
    """Distinct constraint of upstream up to 1.36: for several devices of one request only the latest is remembered.

    Dropping it forgets the request. A, B, A passes for a request of three devices.
    """

    def __init__(self) -> None:
        self._latest: dict[str, Values] = {}

    def add(self, values: Values, request: str) -> bool:
        """Add the values if the latest device of no request has one of them; return whether they were added."""
        if any(values & each for each in self._latest.values()):
            return False
        self._latest[request] = values
        return True

    def drop(self, request: str) -> None:
        """Drop the request's latest values."""
        self._latest.pop(request, None)


def constraint_for(rule: DeviceConstraint, features: Features) -> Constraint:
    """Return a new constraint without devices."""
    if rule.match_attribute:
        return Matching()
    return DistinctByRequest() if features.distinct_attribute == "upstream" else Distinct()
