"""Switches that every controller process reads, as a typed view."""

from dataclasses import dataclass

from services.api.switches import switch


@dataclass(frozen=True)
class ManagerSwitches:
    """Switches of the manager, independent of its controllers."""

    has_own_write_gate: bool = switch("controllers.own_write_gate")
