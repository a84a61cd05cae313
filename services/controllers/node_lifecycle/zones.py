"""Rate of NoExecute taints per zone: it depends on the share of healthy nodes; each zone has a token bucket.

Source: kubelet 2.3; upstream `pkg/controller/nodelifecycle/node_lifecycle_controller.go` (`handleDisruption`,
`ComputeZoneState`).
"""

from collections.abc import Mapping, Sequence
from enum import Enum, auto

EVICTION_RATE_PER_S = 0.1
SECONDARY_RATE_PER_S = 0.01
LARGE_ZONE_NODES = 50
UNHEALTHY_SHARE = 0.55


class ZoneState(Enum):
    """State of a zone: how many of its nodes are down."""

    NORMAL = auto()
    PARTIAL = auto()
    FULL = auto()


def state_of(ready: Sequence[bool]) -> ZoneState:
    """Return the state of a zone from the readiness of each counted node."""
    down = sum(not each for each in ready)
    if down and down == len(ready):
        return ZoneState.FULL
    if down > 2 and down / len(ready) >= UNHEALTHY_SHARE:
        return ZoneState.PARTIAL
    return ZoneState.NORMAL


class Bucket:
    """Token bucket of one zone's taints; burst 1, full at first."""

    def __init__(self, rate_per_s: float, now_s: float) -> None:
        self._rate_per_s = rate_per_s
        self._tokens = 1.0
        self._at_s = now_s

    def try_take(self, now_s: float) -> bool:
        """Take a token if one is available and the rate is not 0; return whether it was taken."""
        self.refill(now_s, self._rate_per_s)
        if self._tokens < 1.0 or self._rate_per_s <= 0:
            return False
        self._tokens -= 1.0
        return True

    def refill(self, now_s: float, rate_per_s: float) -> None:
        """Add the tokens earned at the old rate; from now on use `rate_per_s`."""
        # A hair is added so that ten seconds at a tenth are one token in floating point too.
        self._tokens = min(1.0, self._tokens + (now_s - self._at_s) * self._rate_per_s + 1e-9)
        self._at_s, self._rate_per_s = now_s, rate_per_s


class Zones:
    """Buckets and queues of all zones; decides which nodes are tainted NoExecute now.

    Invariant: while all zones are fully disrupted (`is_master_disruption`), nothing is queued.
    """

    def __init__(self) -> None:
        self._buckets: dict[str, Bucket] = {}
        self._queues: dict[str, dict[str, None]] = {}
        self.is_master_disruption = False

    def update(self, ready_by_zone: Mapping[str, Sequence[bool]], now_s: float) -> bool:
        """Update the zones' states; return whether this ends master disruption mode."""
        states = {zone: state_of(ready) for zone, ready in ready_by_zone.items()}
        is_all_down = bool(states) and all(state is ZoneState.FULL for state in states.values())
        was_all_down = self.is_master_disruption
        self.is_master_disruption = is_all_down
        for zone, state in states.items():
            rate = EVICTION_RATE_PER_S
            if is_all_down:
                rate = 0.0
            elif state is ZoneState.PARTIAL:
                rate = SECONDARY_RATE_PER_S if len(ready_by_zone[zone]) > LARGE_ZONE_NODES else 0.0
            if zone not in self._buckets:
                self._buckets[zone] = Bucket(rate, now_s)
                self._queues[zone] = {}
            self._buckets[zone].refill(now_s, rate)
        for zone in [zone for zone in self._buckets if zone not in states]:
            del self._buckets[zone], self._queues[zone]
        if is_all_down:
            for queue in self._queues.values():
                queue.clear()
        return was_all_down and not is_all_down

    def queue(self, zone: str, node: str) -> None:
        """Queue the node for its taint."""
        if not self.is_master_disruption:
            self._queues.setdefault(zone, {})[node] = None

    def unqueue(self, node: str) -> None:
        """Remove the node from the queue."""
        for queue in self._queues.values():
            queue.pop(node, None)

    def due(self, now_s: float) -> list[str]:
        """Return the nodes to taint now, oldest first, and remove them from the queue."""
        nodes: list[str] = []
        for zone, queue in self._queues.items():
            while queue and self._buckets[zone].try_take(now_s):
                node = next(iter(queue))
                del queue[node]
                nodes.append(node)
        return nodes
