"""The switches that the process of any controllers reads, as a typed view."""

from dataclasses import dataclass

from services.api.switches import switch


@dataclass(frozen=True)
class ManagerSwitches:
    """Of what runs controllers, whichever they are."""

    has_own_write_gate: bool = switch("controllers.own_write_gate")
