"""Leader election by Lease: it keeps replicas from doing the same work, but does not exclude it.

The epoch excludes: each acquisition raises `leaseTransitions`, leaders send it with every write, and the API
server refuses writes of an older one (guarantees C11).
"""

import asyncio
from typing import Final

import structlog

from services.api.errors import ApiError, Conflict, NotFound, UnknownOutcome
from services.api.meta import Document, Key
from services.api.seams import Clock, EventLog, Random
from services.api.times import format_micro_time
from services.api.wire import Api, LeaseEpoch
from services.client.client import Client
from services.client.lease_record import JITTER, LeaseRecord, Terms
from services.telemetry.metrics import Metrics, Samples, gauge

LEASES = "leases.coordination.k8s.io"
RELEASE_MAX_S = 1.0

log = structlog.get_logger()


class LeadershipLost(Exception):
    """Error: another process holds the lease now, so this process must end (controllers 1.1)."""


class Elector:
    """A candidate for one lease. Call `acquire`, then run `hold` beside the work."""

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
        """`holder`: this instance's name; it survives a restart and differs between replicas."""
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
        self.renewed_s = float("-inf")
        """When the last renewal that the server took was sent: others count from no earlier time."""

    @property
    def record(self) -> LeaseRecord:
        """Observations of the lease by this candidate."""
        return self._record

    @property
    def terms(self) -> Terms:
        """Duration of the lease, and its renewal period."""
        return self._terms

    @property
    def epoch(self) -> str:
        """The epoch `<ns>/<name>/<transitions>`; empty while not leading."""
        return str(LeaseEpoch(self.lease.namespace, self.lease.name, self.transitions)) if self.is_leader else ""

    @property
    def lease_uid(self) -> str:
        """Uid of the Lease in this candidate's last write; empty before."""
        return str((self._document.get("metadata") or {}).get("uid") or "")

    def on_deposed(self) -> None:
        """Note a write that was refused because another leads: `hold` ends at once."""
        self._deposed.set()

    def metrics(self) -> Samples:
        """Return the metric of leadership, under upstream's name."""
        return METRICS.of(self, self.lease.name)

    async def acquire(self) -> str:
        """Wait until this process leads, and return the epoch; at once when no other candidate leads."""
        while True:
            try:
                now = self._clock.now()
                lease = await self.look(now)
                if (lease is None or self._record.may_take(now)) and await self.take(lease):
                    return self.epoch
            except (ApiError, UnknownOutcome) as error:
                log.warning("lease.failed", lease=str(self.lease), reason=str(error))
            await self._pause()

    async def hold(self, *, until_taken: bool = False) -> None:
        """Renew the lease until renewals fail for the renew deadline, another took over, or a write was refused.

        `until_taken`: ignore the deadline, for a holder that stops its work in doubt (`renewed_s`) but need not end. A
        process that ends in good order releases the lease, so that the next leader need not wait for its expiry.
        Raises: LeadershipLost, always.
        """
        renewed_s, reason = self._clock.now(), ""
        try:
            while not reason:
                await self._pause()
                renewed_s, reason = await self._renew_once(self._clock.now() if until_taken else renewed_s)
        except asyncio.CancelledError:
            await self._release()
            raise
        self._write("lease.lose")
        self.is_leader = False
        raise LeadershipLost(f"lease {self.lease}: {reason}")

    async def _renew_once(self, renewed_s: float) -> tuple[float, str]:
        """Renew once; return when that last succeeded, and why this process no longer leads, or ""."""
        if self._deposed.is_set():
            return renewed_s, "a write of ours was refused, another leads"
        deadline_s = renewed_s + self._terms.renew_deadline_s
        try:
            async with asyncio.timeout(max(0.001, deadline_s - self._clock.now())):
                sent_s = self._clock.now()
                reason = await self._renew()
                self.renewed_s = self.renewed_s if reason else sent_s
        except (ApiError, UnknownOutcome, TimeoutError) as error:
            if self._clock.now() >= deadline_s:
                return renewed_s, f"not renewed for {self._terms.renew_deadline_s:g} s: {str(error) or 'no answer'}"
            log.warning("lease.failed", lease=str(self.lease), reason=str(error))
            return renewed_s, ""
        return self._clock.now(), reason

    async def look(self, now: float) -> Document | None:
        """Return the current lease, None if there is none; `now`: the time before the read. Raises: ApiError,
        UnknownOutcome.
        """
        try:
            lease = await self._client.get(LEASES, self.lease)
        except NotFound:
            return None
        self._record.observe(lease, now)
        return lease

    async def take(self, lease: Document | None) -> bool:
        """Write the lease as ours over `lease`, and return whether that succeeded; False if another wrote in between.
        Raises: ApiError, UnknownOutcome.
        """
        sent_s = self._clock.now()
        if lease is None:
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
            self.transitions = int((lease.get("spec") or {}).get("leaseTransitions") or 0) + 1
            writing = self._client.update(LEASES, self.lease, {**lease, "spec": self._spec(None)})
        try:
            self._document = await writing
        except Conflict:
            return False
        self.is_leader, self.renewed_s = True, sent_s
        self._write("lease.acquire")
        log.info("lease.acquired", lease=str(self.lease), epoch=self.epoch)
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
                lease = await self._client.get(LEASES, self.lease)
            except NotFound:
                return "it was deleted"  # and the first candidate to notice makes it anew
            spec = lease.get("spec") or {}
            if spec.get("holderIdentity") != self.holder or spec.get("leaseTransitions") != self.transitions:
                return f"held by {spec.get('holderIdentity')!r} with {spec.get('leaseTransitions')} transitions"
            self._document = lease
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
