"""The slot of a kubelet host: how it is claimed and kept, and what its nodes may do while it is in doubt.

The Lease is in the namespace of the nodes' Leases and has the slot's name, so that a host needs no right
beyond those of its nodes' credential. While the Lease was not renewed for the renew deadline, another host
may be about to take the slot: no call of a node is sent, as if the API server could not be reached. Pods
that run on the nodes run on. A host whose slot was taken by another ends. Source: decision 0052.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping

import structlog

from kubelet.node.status import LEASE_NAMESPACE
from kubelet.slots import Slot, choose
from services.api.errors import ApiError, Forbidden, UnknownOutcome
from services.api.meta import Document, Key
from services.api.seams import Clock, Disk, Seams, Transport
from services.api.wire import Api, Request, Response, WatchEvent, WatchRequest
from services.client.lease_record import Terms
from services.client.leases import Elector
from services.runtime.config import EXIT_CONFIG, StartError

LOOK_PERIOD_S = 0.5
CALL_MAX_S = 30.0
DOUBT_POLL_S = 0.2
RENEWALS_MISSED = 3
"""Missed renewals after which a holder no longer counts as alive."""
LEFT = "{}/left"
"""The file on the volume in which a slot's last holder records that it left.

It has the holder's name and the number of its term.
"""
TAKEN_OVER = "taken-over"
"""The file that marks the files of a holder's term as complete."""

log = structlog.get_logger()


class Slots:
    """The slots of one prefix, among which a host takes one."""

    def __init__(self, seams: Seams, prefix: str, holder: str, terms: Terms) -> None:
        self._seams, self._prefix, self._holder, self._terms = seams, prefix, holder, terms
        self._silence_s = RENEWALS_MISSED * terms.retry_s
        self._electors: list[Elector] = []
        self._slots: list[Slot] = []

    async def claim(self) -> Elector:
        """Return the elector of the slot that this host has taken; wait until a slot can be taken.

        Raises: StartError when the credential of this host is not for nodes of this prefix.
        """
        while True:
            try:
                if (elector := await self._try_claim()) is not None:
                    return elector
            except Forbidden as error:
                raise StartError(f"--slots {self._prefix}: {error}", EXIT_CONFIG) from None
            except (ApiError, UnknownOutcome) as error:
                log.warning("lease.failed", lease=self._prefix, reason=str(error))
            await asyncio.sleep(LOOK_PERIOD_S)

    async def _try_claim(self) -> Elector | None:
        """Look at all slots, and take one if that may be done. Raises: ApiError, UnknownOutcome."""
        clock = self._seams.clock
        leases: list[Document | None] = []
        while not leases or leases[-1] is not None:
            elector = await self._elector(len(leases))
            slot, now = self._slots[len(leases)], clock.now()
            before = slot.record.seen
            leases.append(await elector.look(now))
            slot.observe(is_there=leases[-1] is not None, before=before, now=now)
            slot.is_left = slot.record.seen is not None and _read_left(self._seams.disk, elector) == _term(
                *slot.record.seen
            )
        chosen = choose(self._slots[: len(leases)], clock.now(), self._silence_s)
        # What was found may be out of date by now: the server refuses the write then.
        is_taken = chosen is not None and await self._electors[chosen].take(leases[chosen])
        return self._electors[chosen] if is_taken and chosen is not None else None

    async def _elector(self, number: int) -> Elector:
        """Return this host as a candidate for one slot, in the name of the node that is called so."""
        if number == len(self._electors):
            name = f"{self._prefix}{number}"
            api = await self._seams.transport.node_api(name)
            elector = Elector(
                api,
                self._seams.clock,
                self._seams.random,
                lease=Key(LEASE_NAMESPACE, name),
                holder=self._holder,
                events=self._seams.events,
                terms=self._terms,
            )
            self._electors.append(elector)
            self._slots.append(Slot(elector.record))
        return self._electors[number]


async def leave(disk: Disk, slot: Elector) -> None:
    """Record on the volume that this holder has ended, in case the API server cannot be reached."""
    try:
        await disk.write(LEFT.format(slot.lease.name), _term(slot.holder, "", slot.transitions))
    except OSError as error:
        log.warning("slot.not_left", lease=str(slot.lease), reason=str(error))


def _read_left(disk: Disk, slot: Elector) -> bytes:
    return disk.read(LEFT.format(slot.lease.name)) or b""


def _term(holder: str, _renewed: str, transitions: int) -> bytes:
    return f"{holder} {transitions}".encode()


class SlotTransport:
    """The transport of the nodes of a slot: they are called only while the slot is held. Implements `Transport`."""

    def __init__(self, inner: Transport, slot: Elector, clock: Clock) -> None:
        self._inner, self._slot, self._clock = inner, slot, clock

    def api(self, identity: str = "") -> Api:
        """Return the API server as seen by one of this process's identities."""
        return self._inner.api(identity)

    async def node_api(self, node: str) -> Api:
        """Return the API server as seen by a node. Raises: Forbidden; UnknownOutcome."""
        return _SlotApi(await self._inner.node_api(node), self)

    @property
    def is_certain(self) -> bool:
        """Whether no other host can have the slot yet."""
        return self._clock.now() - self._slot.renewed_s <= self._slot.terms.renew_deadline_s

    async def certain(self, what: str, deadline_s: float) -> None:
        """Wait until the slot is certainly this host's; return at once if it is. Raises: UnknownOutcome."""
        if self.is_certain:
            return
        try:
            async with asyncio.timeout(deadline_s):
                while not self.is_certain:  # noqa: ASYNC110  time passes without an event
                    await asyncio.sleep(DOUBT_POLL_S)
        except TimeoutError:
            text = f"{what} was not sent: {self._slot.lease} was not renewed for {deadline_s:g} s more"
            raise UnknownOutcome(text) from None


class _SlotApi:
    """`Api` of one node of a slot."""

    def __init__(self, api: Api, transport: SlotTransport) -> None:
        self._api, self._transport = api, transport

    async def call(self, request: Request) -> Response:
        """Return the answer. Raises: UnknownOutcome."""
        await self._transport.certain(f"{request.verb} {request.resource}", request.deadline_s or CALL_MAX_S)
        return await self._api.call(request)

    async def watch(self, request: WatchRequest) -> AsyncIterator[list[WatchEvent]]:
        """Yield batches. Raises: ApiError when refused, UnknownOutcome when the connection is lost."""
        await self._transport.certain(f"watch {request.resource}", CALL_MAX_S)
        source = self._api.watch(request)
        try:
            async for batch in source:
                yield batch
        finally:
            if (close := getattr(source, "aclose", None)) is not None:
                await close()


class SlotDisk:
    """A slot's part of a volume. Implements `Disk`.

    The users' files about nodes (`nodes/…`) are there for every holder. Files that a host writes about itself
    and its pods lie in a folder of the holder's term, which the next holder copies and then removes: a host
    that lost the slot while it stood still may end a write after that, and disturbs no one.
    """

    def __init__(self, disk: Disk, slot: str, term: int) -> None:
        self._disk, self._slot = disk, slot
        self._terms = _terms_of(disk, slot)
        self._term = max(term, max(self._terms, default=-1) + 1)

    async def take_over(self) -> None:
        """Copy the files of the last holder whose files are complete. Raises: OSError."""
        kept = [term for term, names in self._terms.items() if TAKEN_OVER in names]
        for name in self._terms[max(kept)] if kept else ():
            data = self._disk.read(f"{self._slot}/{max(kept)}/{name}")
            if name != TAKEN_OVER and data is not None:
                await self._disk.write(self._place(name), data)
        await self._disk.write(self._place(TAKEN_OVER), b"")
        for term, names in self._terms.items():
            for name in names:
                await self._disk.remove(f"{self._slot}/{term}/{name}")

    def _place(self, name: str) -> str:
        return f"{self._slot}/{name}" if "/" in name else f"{self._slot}/{self._term}/{name}"

    def read(self, name: str) -> bytes | None:
        """Return the file's bytes, or None when the file does not exist."""
        return self._disk.read(self._place(name))

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""
        own, shared = f"{self._slot}/{self._term}/", f"{self._slot}/nodes/"
        names = (
            name.removeprefix(own if name.startswith(own) else f"{self._slot}/")
            for name in self._disk.names()
            if name.startswith((own, shared))
        )
        return sorted(name for name in names if name != TAKEN_OVER)

    async def write(self, name: str, data: bytes) -> None:
        """Replace the file. Raises: OSError."""
        await self._disk.write(self._place(name), data)

    async def append_all(self, parts: Mapping[str, bytes]) -> None:
        """Add to the ends of several files. Raises: OSError."""
        await self._disk.append_all({self._place(name): data for name, data in parts.items()})

    async def remove(self, name: str) -> None:
        """Remove the file if it is there. Raises: OSError."""
        await self._disk.remove(self._place(name))


def _terms_of(disk: Disk, slot: str) -> dict[int, list[str]]:
    """Return the files of every term of which there are some."""
    files_by_term: dict[int, list[str]] = {}
    for name in disk.names():
        term, _, file = name.removeprefix(f"{slot}/").partition("/")
        if name.startswith(f"{slot}/") and term.isdigit() and file:
            files_by_term.setdefault(int(term), []).append(file)
    return files_by_term
