"""What must hold between the devices of one claim: an attribute equal on all, or different on each. Pure.

Source: dra-core 3.3; KEP-4381, KEP-5254 for `distinctAttribute`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler.dra.pools import Candidate
from services.api.kinds.resourceclaim import DeviceConstraint

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
