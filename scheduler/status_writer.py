"""Status patches of pods, one at a time a pod, the newest wishes only (KEP-5229 in small).

A later patch takes the place of one not yet sent; a bind or an unbind makes them all pointless. Nothing
here decides anything: what is lost is written again after the next failed attempt.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import structlog

from services.api.errors import ApiError, UnknownOutcome
from services.api.meta import Document, Key
from services.client.client import Client

CONCURRENCY: Final = 64
PENDING_MAX: Final = 100_000
log = structlog.get_logger()


@dataclass(slots=True)
class _Wish:
    key: Key
    uid: str
    patch: Document
    traceparent: str


class StatusWriter:
    """Writes until cancelled. `submit` never blocks."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._wishes: dict[str, _Wish] = {}
        self._sending: dict[str, asyncio.Future[None]] = {}
        self._work = asyncio.Event()
        self.written_total = 0
        self.superseded_total = 0
        self.failed_total = 0

    def submit(self, key: Key, uid: str, patch: Document, *, traceparent: str = "") -> None:
        """Ask for a strategic patch of the pod's status; fields of an unsent earlier one are kept."""
        earlier = self._wishes.get(uid)
        if earlier is not None:
            self.superseded_total += 1
            patch = {"status": {**earlier.patch["status"], **patch["status"]}}
        elif len(self._wishes) >= PENDING_MAX:
            self.failed_total += 1
            return
        self._wishes[uid] = _Wish(key, uid, patch, traceparent)
        self._work.set()

    def drop(self, uid: str) -> None:
        """Forget what was not sent yet: the pod is gone, was bound or was given back."""
        self._wishes.pop(uid, None)

    async def settle(self, uid: str) -> None:
        """Return when nothing is under way for the pod; what was not sent is dropped."""
        self.drop(uid)
        sending = self._sending.get(uid)
        if sending is not None:
            await asyncio.shield(sending)

    async def run(self) -> None:
        """Write what is wished, several pods at a time, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._work.clear()
                for uid in list(self._wishes):
                    if len(self._sending) >= CONCURRENCY:
                        break
                    if uid not in self._sending:
                        self._sending[uid] = asyncio.get_running_loop().create_future()
                        group.create_task(self._send(self._wishes.pop(uid)))
                await self._work.wait()

    async def _send(self, wish: _Wish) -> None:
        try:
            await self._client.patch_rv(
                "pods",
                wish.key,
                wish.patch,
                subresource="status",
                patch_type="strategic",
                uid=wish.uid,
                traceparent=wish.traceparent,
            )
            self.written_total += 1
        except (ApiError, UnknownOutcome) as error:
            self.failed_total += 1
            log.info("pod.status_dropped", pod=str(wish.key), reason=str(error))
        finally:
            self._sending.pop(wish.uid).set_result(None)
            self._work.set()
