"""Leader election by Lease: a hint that keeps replicas from doing the same work, not an exclusion.

What excludes is the epoch: each acquisition raises `leaseTransitions`, leaders send it with every write,
and the API server refuses writes of an older one (guarantees C11). Whether another's lease has run out
is judged by our own monotonic clock since we saw it change, never by the times written in it.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

import structlog

from services.api.errors import ApiError, Conflict, NotFound, UnknownOutcome
from services.api.meta import Document, Key
from services.api.seams import Clock, EventLog, Random
from services.api.times import format_micro_time
from services.api.wire import Api, LeaseEpoch
from services.client.client import Client
from services.telemetry.metrics import Metrics, gauge

LEASES = "leases.coordination.k8s.io"
JITTER = 1.2
"""Waits are drawn between the retry period and this many times it, so that replicas drift apart."""
RELEASE_MAX_S = 1.0

log = structlog.get_logger()


class LeadershipLost(Exception):
    """The lease is no longer ours: the process must end (controllers 1.1)."""


@dataclass(frozen=True)
class Terms:
    """For how long a lease holds after a renewal, when its holder gives up renewing, how often it tries; seconds.

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
    """What a candidate has seen of the lease, and whether it may take it. Pure.

    Invariant: `seen_s` moves only when holder, renewal or transitions changed.
    """

    holder: str
    seen: tuple[str, str, int] | None = None
    seen_s: float = 0.0
    duration_s: float = Terms.lease_s

    def observe(self, lease: Document, now: float) -> None:
        """Take a reading of the lease at monotonic `now`."""
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
        """Whether the lease has no holder, was ours in an earlier life, or its holder has been silent too long.

        A restarted process has its predecessor's name and need not wait for it: the raised epoch fences
        whatever the predecessor still had under way.
        """
        if self.seen is None or self.seen[0] in ("", self.holder):
            return True
        return now - self.seen_s >= self.duration_s


class Elector:
    """One candidate for one lease: `acquire`, then `hold` beside the work."""

    def __init__(
        self,
        api: Api,
        clock: Clock,
        random: Random,
        *,
        lease: Key,
        holder: str,
        events: EventLog | None = None,
        terms: Terms | None = None,
    ) -> None:
        """`holder`: this instance's name, the same after a restart, different from other replicas'."""
        self._terms = terms or Terms()
        self._client = Client(api, clock, random, deadline_s=min(5.0, self._terms.renew_deadline_s / 2))
        self._clock = clock
        self._random = random
        self.lease = lease
        self.holder = holder
        self._events = events
        self._record = LeaseRecord(holder)
        self._document: Document = {}
        self._deposed = asyncio.Event()
        self.transitions = 0
        self.is_leader = False

    @property
    def epoch(self) -> str:
        """`<ns>/<name>/<transitions>`; "" while not leading."""
        return str(LeaseEpoch(self.lease.namespace, self.lease.name, self.transitions)) if self.is_leader else ""

    @property
    def lease_uid(self) -> str:
        """The uid of the Lease as last written by us; "" before."""
        return str((self._document.get("metadata") or {}).get("uid") or "")

    def deposed(self) -> None:
        """Note that a write was refused because another leads: `hold` ends at once."""
        self._deposed.set()

    def metrics(self) -> dict[str, float]:
        """Return whether this candidate leads, under upstream's name."""
        return METRICS.of(self, self.lease.name)

    async def acquire(self) -> str:
        """Return the epoch once this process leads; at once when no other candidate does."""
        while True:
            try:
                if await self._try():
                    self.is_leader = True
                    self._write("lease.acquire")
                    log.info("lease.acquired", lease=str(self.lease), epoch=self.epoch)
                    return self.epoch
            except (ApiError, UnknownOutcome) as error:
                log.warning("lease.failed", lease=str(self.lease), reason=str(error))
            await self._pause()

    async def hold(self) -> None:
        """Renew until that fails for the renew deadline, another took over, or a write of ours was refused.

        A process that ends in good order gives the lease up, so that the next leader need not wait for it to run
        out. Raises: LeadershipLost, always.
        """
        renewed_s, reason = self._clock.now(), ""
        try:
            while not reason:
                await self._pause()
                renewed_s, reason = await self._renewed(renewed_s)
        except asyncio.CancelledError:
            await self._release()
            raise
        self._write("lease.lose")
        self.is_leader = False
        raise LeadershipLost(f"lease {self.lease}: {reason}")

    async def _renewed(self, renewed_s: float) -> tuple[float, str]:
        """Renew once; return when that last succeeded, and why this process no longer leads, or ""."""
        if self._deposed.is_set():
            return renewed_s, "a write of ours was refused, another leads"
        deadline_s = renewed_s + self._terms.renew_deadline_s
        try:
            async with asyncio.timeout(max(0.001, deadline_s - self._clock.now())):
                reason = await self._renew()
        except (ApiError, UnknownOutcome, TimeoutError) as error:
            if self._clock.now() >= deadline_s:
                return renewed_s, f"not renewed for {self._terms.renew_deadline_s:g} s: {str(error) or 'no answer'}"
            log.warning("lease.failed", lease=str(self.lease), reason=str(error))
            return renewed_s, ""
        return self._clock.now(), reason

    async def _try(self) -> bool:
        now = self._clock.now()
        try:
            lease = await self._client.get(LEASES, self.lease)
        except NotFound:
            # It was deleted; an earlier leader must not outrank us, so the count goes on.
            self.transitions = self._record.seen[2] + 1 if self._record.seen is not None else 0
            document = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"namespace": self.lease.namespace, "name": self.lease.name},
                "spec": self._spec(None),
            }
            writing = self._client.create(LEASES, document)
        else:
            self._record.observe(lease, now)
            if not self._record.may_take(now):
                return False
            self.transitions = int((lease.get("spec") or {}).get("leaseTransitions") or 0) + 1
            lease["spec"] = self._spec(None)
            writing = self._client.update(LEASES, self.lease, lease)
        try:
            self._document = await writing
        except Conflict:
            return False
        return True

    async def _renew(self) -> str:
        """Renew; return "" or why this process no longer leads."""
        renewed = {**self._document, "spec": self._spec(self._document["spec"].get("acquireTime"))}
        try:
            self._document = await self._client.update(LEASES, self.lease, renewed)
            return ""
        except (Conflict, NotFound):
            # Another client wrote, or an earlier renewal of ours took effect unnoticed: look.
            try:
                found = await self._client.get(LEASES, self.lease)
            except NotFound:
                return "it was deleted"  # and the first candidate to notice makes it anew
            spec = found.get("spec") or {}
            if spec.get("holderIdentity") != self.holder or spec.get("leaseTransitions") != self.transitions:
                return f"held by {spec.get('holderIdentity')!r} with {spec.get('leaseTransitions')} transitions"
            self._document = found
            return ""

    async def _release(self) -> None:
        """Clear the lease's holder, if the server answers soon; the next epoch fences what is still under way."""
        self.is_leader = False
        spec = {**self._spec(self._document["spec"].get("acquireTime")), "holderIdentity": ""}
        try:
            async with asyncio.timeout(RELEASE_MAX_S):
                await self._client.update(LEASES, self.lease, {**self._document, "spec": spec})
        except (ApiError, UnknownOutcome, TimeoutError) as error:
            log.info("lease.not_released", lease=str(self.lease), reason=str(error))
        else:
            self._write("lease.lose")

    def _spec(self, acquired: str | None) -> Document:
        stamp = format_micro_time(self._clock.wall())
        return {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": self._terms.lease_s,
            "acquireTime": acquired or stamp,
            "renewTime": stamp,
            "leaseTransitions": self.transitions,
        }

    async def _pause(self) -> None:
        """Wait for the retry period, or until a write of ours was refused."""
        try:
            async with asyncio.timeout(self._terms.retry_s * self._random.uniform(1.0, JITTER)):
                await self._deposed.wait()
        except TimeoutError:
            return

    def _write(self, event: str) -> None:
        if self._events is not None:
            epoch = str(LeaseEpoch(self.lease.namespace, self.lease.name, self.transitions))
            self._events.write(event, data={"lease": str(self.lease), "epoch": epoch, "holder": self.holder})


METRICS: Final[Metrics[Elector]] = Metrics(
    gauge("leader_election_master_status", "Whether this candidate leads.", lambda elector: elector.is_leader),
    labels=("name",),
)
