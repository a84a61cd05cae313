"""The switches that an emulated DRA driver reads, as typed views."""

from dataclasses import dataclass
from typing import Final

from services.api.switches import switch


@dataclass(frozen=True)
class DriverSwitches:
    """The switches of one driver."""

    guard: str = switch("dra.double_allocation_guard")


VIEWS: Final = (DriverSwitches,)
"""All views that a driver reads."""
