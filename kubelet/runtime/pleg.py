"""When a node notices what its containers do by themselves: its pod lifecycle event generator. Pure.

Generic: every second, and as long as that takes, the runtime is asked for all containers; what one did since then is
seen then. Evented: the runtime reports at once, and is asked every 300 s only. When that stream has failed five times
the node goes back to asking every second, for good. Here relists are counted from when they began.
What the kubelet does itself, such as stopping a container, it knows without either.
Source: kubelet 1, 10, 11; upstream `pkg/kubelet/pleg`, `pkg/kubelet/kubelet.go` (periods, thresholds, retries).
"""

import math
from typing import Final

GENERIC, EVENTED = "generic", "evented"
PERIODS_S: Final = {GENERIC: 1.0, EVENTED: 300.0}
"""From the end of one relist to the beginning of the next."""
THRESHOLDS_S: Final = {GENERIC: 180.0, EVENTED: 600.0}
"""So long after the last relist the node is not Ready."""
STREAM_TRIES: Final = 5


class Pleg:
    """Invariant: relists begin at `_anchor_s` and every `interval_s` from there, but none between `_stuck`."""

    def __init__(self, mode: str = EVENTED, relist_s: float = 0.0, now: float = 0.0, share: float = 0.0) -> None:
        self.mode = mode
        """How it goes about it now; evented may fall back to generic."""
        self.relist_s = relist_s
        self._anchor_s = now + share * (PERIODS_S[GENERIC] + relist_s)
        self._stuck = (math.inf, math.inf)
        self._tries_left = STREAM_TRIES
        self.connections, self.errors = int(mode == EVENTED), 0
        self._counted = 0
        self._first_s = self._anchor_s

    @property
    def interval_s(self) -> float:
        """From the beginning of one relist to that of the next."""
        return PERIODS_S[self.mode] + self.relist_s

    @property
    def threshold_s(self) -> float:
        """How long the node stays Ready while no relist ends."""
        return THRESHOLDS_S[self.mode]

    def notices_s(self, t: float) -> float:
        """Return when something that happened at `t` is noticed; infinity: never, as things are.

        Without events that is the end of the first relist that begins at `t` or later; a stuck one ends with that.
        """
        if self.mode == EVENTED:
            return t
        first = max(0, math.ceil((t - self._anchor_s) / self.interval_s - 1e-9))
        begins_s = self._anchor_s + first * self.interval_s
        from_s, until_s = self._stuck
        return until_s if from_s <= begins_s < until_s else begins_s + self.relist_s

    def relists(self, now: float) -> int:
        """Return how many relists have ended by now, forced ones included."""
        from_s, until_s = self._stuck
        found = self._counted + self._ended(min(now, from_s))
        return found if now < until_s else found + 1 + self._ended(now) - self._ended(until_s)

    def _ended(self, now: float) -> int:
        """Return how many relists of the grid have ended by then."""
        since_s = now - self._anchor_s - self.relist_s
        return 0 if since_s < 0 else 1 + int(since_s / self.interval_s + 1e-9)

    def spanned_s(self, now: float) -> float:
        """Return how long it is from the first relist to the last that has ended: the sum of their intervals."""
        from_s, until_s = self._stuck
        at_s = self._anchor_s
        if until_s <= now:
            at_s = max(until_s, at_s)
        elif from_s <= now:
            now = from_s
        last = self._ended(now)
        return max(0.0, max(at_s, self._anchor_s + (last - 1) * self.interval_s) - self._first_s) if last else 0.0

    def stick(self, now: float, for_s: float) -> None:
        """No relist ends for so long; 0: the one that was stuck ends now, and the next begins a period later."""
        if for_s <= 0 and now >= self._stuck[1]:
            return
        was_stuck = for_s <= 0 and self._stuck[0] <= now < self._stuck[1]
        self._counted, due_s = self.relists(now), self._anchor_s
        if was_stuck:
            due_s = now
        elif now > due_s:
            due_s += math.ceil((now - due_s) / self.interval_s - 1e-9) * self.interval_s
        self._anchor_s = due_s
        self._stuck = (now, now + for_s) if for_s > 0 else (math.inf, math.inf)

    def fail_stream(self, now: float, tries: int) -> None:
        """The runtime's stream of events failed so often in a row: each time everything is asked for."""
        if self.mode == GENERIC:
            return
        tries = min(tries, self._tries_left)
        self._tries_left -= tries
        self.errors += tries
        self._counted += tries
        if self._tries_left:
            self.connections += 1
            return
        self._counted, self._anchor_s = self.relists(now), now
        self.mode = GENERIC


AT_ONCE: Final = Pleg()
"""Of nodes that notice everything at once; it is never changed."""
