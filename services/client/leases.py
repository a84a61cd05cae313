"""Leader election by Lease: a hint that keeps replicas from doing the same work, not an exclusion.

What excludes is the epoch: each acquisition raises `leaseTransitions`, leaders send it with every write,
and the API server refuses writes of an older one (guarantees C11). Whether another's lease has run out
is judged by our own monotonic clock since we saw it change, never by the times written in it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from services.api.errors import ApiError, Conflict, NotFound, UnknownOutcome
from services.api.meta import Document, Key
from services.api.seams import Clock, EventLog, Random
from services.api.times import format_micro_time
from services.api.wire import Api
from services.client.client import Client

LEASE_S = 15
RENEW_DEADLINE_S = 10.0
RETRY_S = 2.0
JITTER = 1.2
"""Waits are drawn between the retry period and this many times it, so that replicas drift apart."""

log = structlog.get_logger()


class LeadershipLost(Exception):
    """The lease is no longer ours: the process must end (controllers 1.1)."""


@dataclass
class Seat:
    """What a candidate has seen of the lease, and whether it may take it. Pure.

    Invariant: `seen_s` moves only when holder, renewal or transitions changed.
    """

    holder: str
    seen: tuple[str, str, int] | None = None
    seen_s: float = 0.0
    duration_s: float = LEASE_S

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
        self.duration_s = float(spec.get("leaseDurationSeconds") or LEASE_S)

    def may_take(self, now: float) -> bool:
        """Whether the seat is empty, was ours in an earlier life, or its holder has been silent too long.

        A restarted process has its predecessor's name and need not wait for it: the raised epoch fences
        whatever the predecessor still had under way.
        """
        if self.seen is None or self.seen[0] in ("", self.holder):
            return True
        return now - self.seen_s >= self.duration_s


class Elector:
    """One candidate for one lease."""

    def __init__(
        self,
        api: Api,
        clock: Clock,
        random: Random,
        *,
        lease: Key,
        holder: str,
        events: EventLog | None = None,
        lease_s: int = LEASE_S,
        renew_deadline_s: float = RENEW_DEADLINE_S,
        retry_s: float = RETRY_S,
    ) -> None:
        """`holder`: this instance's name, the same after a restart, different from other replicas'."""
        self._client = Client(api, clock, random, deadline_s=min(5.0, renew_deadline_s / 2))
        self._clock = clock
        self._random = random
        self._lease = lease
        self._holder = holder
        self._events = events
        self._lease_s = lease_s
        self._renew_deadline_s = renew_deadline_s
        self._retry_s = retry_s
        self._seat = Seat(holder)
        self._document: Document = {}
        self.transitions = 0
        self.is_leader = False

    @property
    def epoch(self) -> str:
        """`<ns>/<name>/<transitions>`, for `Client.lease_epoch`; "" while not leading."""
        return f"{self._lease.namespace}/{self._lease.name}/{self.transitions}" if self.is_leader else ""

    async def acquire(self) -> str:
        """Return the epoch once this process leads; at once when nobody else does."""
        while True:
            try:
                if await self._try():
                    self.is_leader = True
                    self._write("lease.acquire")
                    log.info("lease.acquired", lease=str(self._lease), epoch=self.epoch)
                    return self.epoch
            except (ApiError, UnknownOutcome) as error:
                log.warning("lease.failed", lease=str(self._lease), reason=str(error))
            await self._pause()

    async def hold(self) -> None:
        """Renew until that fails for the renew deadline, or another took over.

        Raises: LeadershipLost, always.
        """
        renewed_s = self._clock.now()
        while True:
            await self._pause()
            try:
                async with asyncio.timeout(max(0.001, renewed_s + self._renew_deadline_s - self._clock.now())):
                    reason = await self._renew()
                if not reason:
                    renewed_s = self._clock.now()
                    continue
            except (ApiError, UnknownOutcome, TimeoutError) as error:
                if self._clock.now() - renewed_s < self._renew_deadline_s:
                    log.warning("lease.failed", lease=str(self._lease), reason=str(error))
                    continue
                reason = f"not renewed for {self._renew_deadline_s:g} s: {error}"
            self._write("lease.lose")
            self.is_leader = False
            raise LeadershipLost(f"lease {self._lease}: {reason}")

    async def _try(self) -> bool:
        now = self._clock.now()
        try:
            lease = await self._client.get("leases.coordination.k8s.io", self._lease)
        except NotFound:
            self.transitions = 0
            document = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"namespace": self._lease.namespace, "name": self._lease.name},
                "spec": self._spec(None),
            }
            try:
                self._document = await self._client.create("leases.coordination.k8s.io", document)
            except Conflict:
                return False
            return True
        self._seat.observe(lease, now)
        if not self._seat.may_take(now):
            return False
        self.transitions = int((lease.get("spec") or {}).get("leaseTransitions") or 0) + 1
        lease["spec"] = self._spec(None)
        try:
            self._document = await self._client.update("leases.coordination.k8s.io", self._lease, lease)
        except Conflict:
            return False
        return True

    async def _renew(self) -> str:
        """Renew; return "" or why this process no longer leads."""
        lease = dict(self._document)
        lease["spec"] = self._spec(lease["spec"].get("acquireTime"))
        try:
            self._document = await self._client.update("leases.coordination.k8s.io", self._lease, lease)
            return ""
        except (Conflict, NotFound):
            # Somebody else wrote, or an earlier renewal of ours took effect unnoticed: look.
            found = await self._client.get("leases.coordination.k8s.io", self._lease)
            spec = found.get("spec") or {}
            if spec.get("holderIdentity") != self._holder or spec.get("leaseTransitions") != self.transitions:
                return f"held by {spec.get('holderIdentity')!r} with {spec.get('leaseTransitions')} transitions"
            self._document = found
            return ""

    def _spec(self, acquired: str | None) -> Document:
        stamp = format_micro_time(self._clock.wall())
        return {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": self._lease_s,
            "acquireTime": acquired or stamp,
            "renewTime": stamp,
            "leaseTransitions": self.transitions,
        }

    async def _pause(self) -> None:
        await asyncio.sleep(self._retry_s * self._random.uniform(1.0, JITTER))

    def _write(self, event: str) -> None:
        if self._events is not None:
            self._events.write(event, data={"lease": str(self._lease), "epoch": self.epoch})
