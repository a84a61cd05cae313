"""Flags of leader election, for a process that shares its work with replicas."""

from dataclasses import dataclass

from services.api.meta import Key
from services.api.seams import Seams
from services.client.lease_record import Terms
from services.client.leases import Elector
from services.runtime.config import EXIT_USAGE, CommonConfig, StartError, setting

NAMESPACE = "kube-system"


@dataclass(frozen=True, kw_only=True)
class LeaderElectionConfig(CommonConfig):
    """Configuration of a process that may have replicas; the flags are upstream's, durations in seconds."""

    leader_elect: bool = setting(False, "work only while holding the lease; a standby keeps its caches warm")
    leader_elect_resource_name: str = setting("", "name of the lease in kube-system; empty: upstream's name")
    leader_elect_lease_duration_s: int = setting(15, "seconds without a renewal after which a standby leads")
    leader_elect_renew_deadline_s: float = setting(10.0, "seconds without a renewal after which the leader ends")
    leader_elect_retry_period_s: float = setting(2.0, "seconds between tries to take or renew the lease")

    def terms(self) -> Terms:
        """Return the durations. Raises: StartError (64) when they allow two leaders at once."""
        try:
            return Terms(
                self.leader_elect_lease_duration_s, self.leader_elect_renew_deadline_s, self.leader_elect_retry_period_s
            )
        except ValueError as error:
            raise StartError(str(error), EXIT_USAGE) from None

    def elector(self, seams: Seams, lease: str) -> Elector | None:
        """Return a candidate for the lease of that name, or for the configured one; None without election."""
        if not self.leader_elect:
            return None
        return Elector(
            seams.transport.api(),
            seams.clock,
            seams.random,
            lease=Key(NAMESPACE, self.leader_elect_resource_name or lease),
            holder=self.name,
            events=seams.events,
            terms=self.terms(),
        )
