"""Switches that the controllers read, as typed views: one per group of controllers with the same switches."""

from dataclasses import dataclass
from typing import Final

from services.api.switches import switch
from services.api.unbind import UnbindSwitches
from services.reconcile.claim_release import ReleaseSwitches
from services.reconcile.manager_switches import ManagerSwitches


@dataclass(frozen=True)
class QuotaSwitches:
    """Switches of quota counting."""

    has_extended_resources: bool = switch("DRAExtendedResource")


@dataclass(frozen=True)
class WorkloadSwitches:
    """Switches of controllers that make pods."""

    may_replace_many: bool = switch("MaxUnavailableStatefulSet")
    counts_rejections: bool = switch("job.count_rejections")
    failed_backoff: str = switch("rs.failed_backoff")


@dataclass(frozen=True)
class DeschedulerSwitches:
    """Switches of the descheduler."""

    is_on: bool = switch("descheduler.enabled")
    excluded_owners: str = switch("descheduler.exclude_owners")
    interval_s: float = switch("descheduler.interval_s")
    min_lifetime_s: float = switch("descheduler.min_lifetime_s")
    reasons: str = switch("descheduler.reasons")


@dataclass(frozen=True)
class VolumeSwitches:
    """Switches of volume controllers."""

    controller_attaches: bool = switch("kubelet.enable_controller_attach_detach")
    provision_s: float = switch("volumes.provision_s")


@dataclass(frozen=True)
class NodeSwitches:
    """Switches of controllers of nodes, and of pods whose nodes are gone."""

    grace_s: float = switch("node.grace_s")
    is_eviction_faithful: bool = switch("tainteviction.faithful")
    rechecks_garbage: bool = switch("podgc.recheck")
    garbage_max: int = switch("podgc.threshold")


@dataclass(frozen=True)
class UnbindingSwitches:
    """Switches of controllers that unbind pods, or hold back nodes that do."""

    on_reject: str = switch("kubelet.on_reject")
    taints_storms: bool = switch("unbind.storm_taint")
    api: str = switch("unbind.api")
    fence: str = switch("unbind.fence")
    attempts_max: int = switch("unbind.max_attempts")
    user_bound: str = switch("unbind.user_bound")


VIEWS: Final = (
    QuotaSwitches,
    WorkloadSwitches,
    DeschedulerSwitches,
    VolumeSwitches,
    NodeSwitches,
    UnbindingSwitches,
    UnbindSwitches,
    ReleaseSwitches,
    ManagerSwitches,
)
"""All views that the controllers read."""
