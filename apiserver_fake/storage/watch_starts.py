"""Turns of watches with a long start: a few start at once, fewer per identity, the others wait in a queue.

A start that sends nothing because its client does not read releases its place to the next one, and takes a new
turn when its client reads again. So a start costs other clients a slice of the loop's time, and a stalled one
nothing (guarantees L-PF: watches count until their initial state is sent; AS-16). Pure but for the loop's
timers.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from services.api.errors import TooManyRequests

AT_ONCE, AT_ONCE_PER_IDENTITY = 4, 2
WAITING_MAX, WAITING_PER_IDENTITY = 2_000, 256
WAIT_S: Final = 15.0
"""Seconds that a start waits for its turn: a quarter of a request's longest time. Source: upstream
`staging/src/k8s.io/apiserver/pkg/server/config.go`.
"""
STALLED_S: Final = 0.25
"""Seconds without reading after which a client's start releases its place."""
RETRY_AFTER_S: Final = 1


class Place:
    """The place of one start, held or waited for."""

    __slots__ = ("_starts", "is_held", "is_waiting", "on_turn", "user")

    def __init__(self, starts: Starts, user: str, on_turn: Callable[[], None]) -> None:
        self._starts, self.user, self.on_turn = starts, user, on_turn
        self.is_held = self.is_waiting = False

    def give_back(self) -> None:
        """Release the place to the next start; call `ask_again` before the next piece."""
        if self.is_held:
            self.is_held = False
            self._starts.release(self.user)

    def ask_again(self) -> None:
        """Wait for another turn, ahead of starts that had none; `on_turn` is called unless the place is held at
        once.
        """
        if not self.is_held and not self.is_waiting:
            self._starts.enter(self, is_first=True)

    def leave(self) -> None:
        """Release the place, or stop waiting for one."""
        if self.is_waiting:
            self.is_waiting = False
            self._starts.forget(self)
        self.give_back()

    def stalls_later(self) -> asyncio.TimerHandle:
        """Return the timer that releases the place; cancel it when the client has read what was sent."""
        return asyncio.get_running_loop().call_later(STALLED_S, self.give_back)

    async def turn(self) -> None:
        """Wait until the place is held, without a time limit, because its stream has begun."""
        woken = asyncio.Event()
        self.on_turn = woken.set
        self.ask_again()
        while not self.is_held:
            await woken.wait()
            woken.clear()


class Starts:
    """The places of one server, assigned in turn to the identities that wait for one."""

    def __init__(self, at_once: int = AT_ONCE, per_identity: int = AT_ONCE_PER_IDENTITY) -> None:
        self._at_once, self._per_identity = at_once, per_identity
        self._queues: dict[str, deque[Place]] = {}
        self._held: Counter[str] = Counter()
        self.held = self.waiting = 0
        self.refused = 0

    def ask(self, user: str, on_turn: Callable[[], None]) -> Place:
        """Return a place, held or waiting; `on_turn` is called when a waiting one is held. Raises: TooManyRequests."""
        mine = len(self._queues.get(user, ()))
        if mine >= WAITING_PER_IDENTITY or self.waiting >= WAITING_MAX:
            raise self.refusal(f"{mine} watches of {user}, {self.waiting} in all wait to begin")
        place = Place(self, user, on_turn)
        self.enter(place)
        return place

    def refusal(self, why: str) -> TooManyRequests:
        """Return the refusal of a start, and count it."""
        self.refused += 1
        return TooManyRequests(f"{why}, try again later", retry_after_s=RETRY_AFTER_S)

    async def turn(self, user: str) -> Place:
        """Wait for a place and return it. Raises: TooManyRequests when its turn did not come within 15 s."""
        woken = asyncio.Event()
        place = self.ask(user, woken.set)
        try:
            async with asyncio.timeout(WAIT_S):
                while not place.is_held:
                    await woken.wait()
                    woken.clear()
        except TimeoutError:
            place.leave()
            raise self.late() from None
        except BaseException:
            place.leave()
            raise
        return place

    def late(self) -> TooManyRequests:
        """Return the refusal of a start whose turn did not come."""
        return self.refusal(f"the watch could not begin within {WAIT_S:g} s, as {self.waiting} others wait to begin")

    # -- a place's side

    def enter(self, place: Place, *, is_first: bool = False) -> None:
        """Queue a place; it may be held at once."""
        queue = self._queues.setdefault(place.user, deque())
        if is_first:
            queue.appendleft(place)
        else:
            queue.append(place)
        place.is_waiting = True
        self.waiting += 1
        self._grant(place)

    def forget(self, place: Place) -> None:
        """Remove a place from its queue."""
        queue = self._queues[place.user]
        queue.remove(place)
        self.waiting -= 1
        if not queue:
            del self._queues[place.user]

    def release(self, user: str) -> None:
        """Free one place of a user."""
        self.held -= 1
        self._held[user] -= 1
        if not self._held[user]:
            del self._held[user]
        self._grant(None)

    def _grant(self, asking: Place | None) -> None:
        """Give free places to the identities in turn."""
        while self.held < self._at_once:
            user = next((user for user in self._queues if self._held[user] < self._per_identity), None)
            if user is None:
                return
            queue = self._queues.pop(user)
            place = queue.popleft()
            if queue:
                self._queues[user] = queue
            self.waiting -= 1
            place.is_waiting, place.is_held = False, True
            self.held += 1
            self._held[user] += 1
            if place is not asking:
                place.on_turn()
