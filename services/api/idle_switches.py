"""Which switches somebody set change nothing, because of what another one says.

Nothing is wrong with setting them: arms of a comparison share what they do not all need. But who forgot the gate of a
feature sees nothing happen, and should be told why.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from services.api.switches import Switches

GATE: Final = "InPlacePodVerticalScalingSchedulerPreemption"


class Need(NamedTuple):
    """Switches that have an effect only while `other` has one of these values."""

    names: tuple[str, ...]
    other: str
    values: tuple[str, ...]


NEEDS: Final = (
    Need(
        ("resize.generation", "resize.on_fit", "resize.parked_wakeup", "resize.conditions", "resize.policy_source",
         "resize.double_preemption", "resize.shortcut_fiterror", "resize.remove_self", "resize.retry_scope",
         "resize.retry_period_s", "resize.update_order", "resize.group_member", "resize.supersede",
         "resize.reprieve_uses_allocated", "resize.adjust_pod_count", "resize.outside_plugins"),
        GATE, ("true",),
    ),
    Need(("resize.retry_period_s",), "resize.retry_scope", ("periodic",)),
    Need(("resize.parked_wakeup",), "resize.retry_scope", ("node_only", "any_event")),
    Need(("resize.group_member",), "GenericWorkload", ("true",)),
)  # fmt: skip


def remarks(switches: Switches) -> list[str]:
    """Return a line for each switch that was set and changes nothing."""
    found = []
    for assignment in switches.assignments:
        for need in NEEDS:
            if assignment.partition("=")[0] not in need.names:
                continue
            value = switches[need.other]
            other = str(value).lower() if isinstance(value, bool) else str(value)
            if other not in need.values:
                found.append(f"{assignment} changes nothing while {need.other}={other}")
                break
    return found
