"""The switches that the claim controller reads, as typed views."""

from dataclasses import dataclass
from typing import Final

from services.api.switches import switch
from services.reconcile.manager_switches import ManagerSwitches


@dataclass(frozen=True)
class ClaimSwitches:
    """The switches of one claim controller; properties combine several switches."""

    claim_release: str = switch("unbind.claim_release")
    mode: str = switch("reserved_for.mode")
    consumers_max: int = switch("reserved_for.max")
    design: str = switch("release.design")
    unknown_entry: str = switch("rc.unknown_entry")
    dealloc_when_empty: str = switch("rc.dealloc_when_empty")
    owner_check_s: float = switch("rc.owner_check_interval")
    owner_deletion: str = switch("owner_deletion")
    has_taint_rules: bool = switch("DRADeviceTaintRules")
    has_taints: bool = switch("DRADeviceTaints")

    @property
    def takes_unbound(self) -> bool:
        """Whether claims are released from pods that were unbound."""
        return self.claim_release == "rc"

    @property
    def has_workloads(self) -> bool:
        """Whether claims may be reserved for workloads (gate DRAReservedForWorkloads)."""
        return self.mode == "kep5194"

    @property
    def has_pod_groups(self) -> bool:
        """Whether pod groups may have claims (gate DRAWorkloadResourceClaims)."""
        return self.mode == "kep5729"

    @property
    def skips_unknown(self) -> bool:
        """Whether entries of unknown kinds of consumers are skipped; otherwise the whole claim is left alone."""
        return self.unknown_entry == "skip" or (self.unknown_entry == "by_mode" and self.has_workloads)

    @property
    def removes_workloads(self) -> bool:
        """Whether the entry of a workload that is gone is removed; otherwise it is only counted as orphaned."""
        return self.design in ("rc_never", "rc_builtin") or (
            self.design == "owner" and self.owner_deletion == "rc_fallback"
        )

    @property
    def looks_again(self) -> bool:
        """Whether workloads are looked up again periodically, without an event."""
        return self.design != "rc_never"


VIEWS: Final = (ClaimSwitches, ManagerSwitches)
"""All views that the claim controller reads."""
