"""A client that calls the API server no oftener than it may; who waits, and for how long, is decided in `limits`.

Source: kep-5229 1, 9.
"""

from __future__ import annotations

import asyncio
from typing import Any

from scheduler.dispatcher.limits import Limits, lane_of
from services.api.seams import Clock, Random
from services.api.wire import Api, Request, Response
from services.client.client import Client

LATE_S = 1e-6
"""Added to a wait, so that a token is surely there when it ends."""


class LimitedClient(Client):
    """A client whose every call waits for its turn first; repeats of a call take no further turn."""

    def __init__(self, api: Api, clock: Clock, random: Random, limits: Limits, **more: Any) -> None:
        super().__init__(api, clock, random, **more)
        self._limits = limits
        self._now = clock.now
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def call(self, request: Request) -> Response:
        """Make the call when it is admitted. Events are not limited: upstream has another client for them."""
        if request.resource == "events":
            return await super().call(request)
        ticket = self._limits.ask(lane_of(request))
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = turn
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():  # else it was admitted already
                self._limits.give_up(ticket)
            raise
        finally:
            self._waiting.pop(ticket, None)
        return await super().call(request)

    def _admit(self) -> None:
        now = self._now()
        for ticket in self._limits.admitted(now):
            turn = self._waiting.get(ticket)
            if turn is not None and not turn.done():
                turn.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._limits.next_turn(now)
        if due is not None:
            self._timer = asyncio.get_running_loop().call_later(due - now + LATE_S, self._admit)
