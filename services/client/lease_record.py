"""Duration of a Lease, and a candidate's observations of it. Pure.

Whether another's lease has expired is judged by our own monotonic clock since its last observed change, never
by the times written in it.
"""

from dataclasses import dataclass

from services.api.meta import Document

JITTER = 1.2
"""Jitter factor: waits are drawn between the retry period and this many times it, so that replicas drift apart."""


@dataclass(frozen=True)
class Terms:
    """Timing of a lease in seconds: its duration after a renewal, the holder's renew deadline, and the retry
    period.

    Upstream's defaults (`leaderElection` of a component's configuration). Invariant: `lease_s > renew_deadline_s >
    retry_s * JITTER`, so that a leader ends before another begins.
    """

    lease_s: int = 15
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        if not self.lease_s > self.renew_deadline_s > self.retry_s * JITTER > 0:
            raise ValueError(
                f"leader election wants lease duration > renew deadline > {JITTER:g} x retry period > 0, "
                f"not {self.lease_s} s, {self.renew_deadline_s:g} s, {self.retry_s:g} s"
            )


@dataclass
class LeaseRecord:
    """A candidate's observations of the lease, and whether it may take it. Pure.

    Invariant: `seen_s` moves only when holder, renewal or transitions changed.
    """

    holder: str
    seen: tuple[str, str, int] | None = None
    seen_s: float = 0.0
    duration_s: float = Terms.lease_s

    def observe(self, lease: Document, now: float) -> None:
        """Record a reading of the lease at monotonic `now`."""
        spec = lease.get("spec") or {}
        reading = (
            str(spec.get("holderIdentity") or ""),
            str(spec.get("renewTime") or ""),
            int(spec.get("leaseTransitions") or 0),
        )
        if reading != self.seen:
            self.seen, self.seen_s = reading, now
        self.duration_s = float(spec.get("leaseDurationSeconds") or Terms.lease_s)

    def may_take(self, now: float) -> bool:
        """Whether the lease has no holder, was ours before a restart, or has not changed for its duration.

        A restarted process has its predecessor's name and need not wait for it: the raised epoch fences pending writes
        of the predecessor.
        """
        if self.seen is None or self.seen[0] in ("", self.holder):
            return True
        return now - self.seen_s >= self.duration_s
