"""Switches that were set but have no effect, because of the value of another switch.

Setting them is no error: the arms of a comparison share switches that not every arm needs. But an operator who
forgot the gate of a feature sees no effect and needs the reason.
"""

from typing import Final, NamedTuple

from services.api.switches import Switches
from services.api.unbind import is_reason

GATE: Final = "InPlacePodVerticalScalingSchedulerPreemption"


UNBINDS: Final = ("unbind", "defer-then-unbind")


class Need(NamedTuple):
    """Switches, or single values of them, that have an effect only while `other` has one of `values`."""

    names: tuple[str, ...]
    other: str
    values: tuple[str, ...]


NEEDS: Final = (
    Need(
        ("resize.generation", "resize.parked_wakeup", "resize.double_preemption", "resize.retry_scope",
         "resize.retry_period_s", "resize.update_order", "resize.group_member", "resize.supersede",
         "resize.reprieve_uses_allocated", "resize.adjust_pod_count", "resize.reserved_by"),
        GATE, ("true",),
    ),
    Need(("resize.retry_period_s",), "resize.retry_scope", ("periodic",)),
    Need(("resize.parked_wakeup",), "resize.retry_scope", ("node_only", "any_event")),
    Need(("resize.group_member",), "GenericWorkload", ("true",)),
    Need(
        ("unbind.api", "unbind.reasons", "unbind.max_attempts", "unbind.attempt_decay", "unbind.fallback",
         "unbind.fence", "unbind.request_deadline_s", "unbind.storm_taint", "unbind.gang",
         "unbind.claim_release", "unbind.user_bound", "unbind.rate_node_per_min", "unbind.rate_node_burst",
         "unbind.rate_namespace_per_min", "unbind.rate_cluster_per_min", "unbind.require_scheduler_capability",
         "authz.unbind_callers", "kubelet.unbind_teardown", "exclusion.base_s", "exclusion.max_s", "exclusion.scope",
         "scheduler.exclusion"),
        "kubelet.on_reject", UNBINDS,
    ),
    Need(("kubelet.on_reject=unbind",), "PodUnbinding", ("true",)),
    Need(("kubelet.on_reject=unbind",), "unbind.api", ("subresource", "binding_delete", "condition")),
    Need(("unbind.fence=session",), "unbind.api", ("subresource", "binding_delete")),
    Need(("exclusion.scope",), "scheduler.exclusion", ("hard", "soft", "adaptive")),
    Need(("defer.timeout_s", "defer.period_s"), "kubelet.on_reject", ("defer", "defer-then-unbind")),
    Need(("defer.reasons",), "kubelet.on_reject", ("defer-then-unbind",)),
    Need(("descheduler.interval_s", "descheduler.reasons"), "descheduler.enabled", ("true",)),
    Need(("nrt.refresh_s",), "numa_scheduler", ("nrt_stale", "nrt_overreserve")),
)  # fmt: skip


def remarks(switches: Switches) -> list[str]:
    """Return a line for each switch that was set but has no effect."""
    lines = []
    for assignment in switches.assignments:
        for need in NEEDS:
            if assignment.partition("=")[0] not in need.names and assignment not in need.names:
                continue
            value = switches[need.other]
            other = str(value).lower() if isinstance(value, bool) else str(value)
            if other not in need.values:
                lines.append(f"{assignment} changes nothing while {need.other}={other}")
                break
    return lines + _of_unbinding(switches)


def _of_unbinding(switches: Switches) -> list[str]:
    """Return what keeps kubelets that should give pods back from doing so."""
    if switches.choice("kubelet.on_reject") not in UNBINDS:
        return []
    lines = []
    api, callers = switches.choice("unbind.api"), switches.choice("authz.unbind_callers")
    if callers == "controller" and api in ("subresource", "binding_delete"):
        lines.append(f"authz.unbind_callers={callers} refuses what kubelets ask with unbind.api={api}: want condition")
    for name in ("unbind.reasons", "defer.reasons"):
        for pattern in filter(None, switches.choice(name).split("+")):
            if switches.is_set(name) and not is_reason(pattern):
                lines.append(f"{name}={switches[name]}: no pod is unbound for a reason like {pattern}")
    return lines
