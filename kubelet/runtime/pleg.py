"""The pod lifecycle event generator: when a node notices changes that containers make by themselves. Pure.

Generic: every second, plus the time of the query, the runtime is asked for all containers; a change is seen
by the next query. Evented: the runtime reports at once, and is asked every 300 s only. When that stream has
failed five times the node goes back to asking every second, for good. Here relists are counted from when
they began. The kubelet's own actions, such as stopping a container, are known without either. Source:
kubelet 1, 10, 11; upstream `pkg/kubelet/pleg`, `pkg/kubelet/kubelet.go` (periods, thresholds, retries).
"""

import math
from typing import Final

GENERIC, EVENTED = "generic", "evented"
PERIODS_S: Final = {GENERIC: 1.0, EVENTED: 300.0}
"""Seconds from the end of one relist to the beginning of the next."""
THRESHOLDS_S: Final = {GENERIC: 180.0, EVENTED: 600.0}
"""Seconds after the last relist from which on the node is not Ready."""
STREAM_TRIES: Final = 5


class Pleg:
    """The relists of one node.

    Invariant: relists begin at `_anchor_s` and every `interval_s` from there, but none between `_stuck`.
    """

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
        """Seconds from the beginning of one relist to that of the next."""
        return PERIODS_S[self.mode] + self.relist_s

    @property
    def threshold_s(self) -> float:
        """Seconds for which the node stays Ready while no relist ends."""
        return THRESHOLDS_S[self.mode]

    def notices_s(self, t: float) -> float:
        """Return when a change at `t` is noticed; infinity: never, as things are.

        Without events that is the end of the first relist that begins at `t` or later; a relist that is stuck ends
        with the fault.
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
        found = self._counted + self._count_relists(min(now, from_s))
        return found if now < until_s else found + 1 + self._count_relists(now) - self._count_relists(until_s)

    def _count_relists(self, now: float) -> int:
        """Return how many relists of the grid have ended by then."""
        since_s = now - self._anchor_s - self.relist_s
        return 0 if since_s < 0 else 1 + int(since_s / self.interval_s + 1e-9)

    def spanned_s(self, now: float) -> float:
        """Return the seconds from the first relist to the last that has ended: the sum of their intervals."""
        from_s, until_s = self._stuck
        at_s = self._anchor_s
        if until_s <= now:
            at_s = max(until_s, at_s)
        elif from_s <= now:
            now = from_s
        last = self._count_relists(now)
        return max(0.0, max(at_s, self._anchor_s + (last - 1) * self.interval_s) - self._first_s) if last else 0.0

    def stick(self, now: float, for_s: float) -> None:
        """Let no relist end for so many seconds; 0: the stuck relist ends now, and the next begins a period later."""
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
        """Fail the runtime's stream of events `tries` times in a row: each time all containers are queried."""
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
"""The generator of nodes that notice all changes at once; it is never changed."""
