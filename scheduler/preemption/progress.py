"""Evictions under way, and the evictions that the loops have to make (KEP-4832; preemption 4)."""

from collections.abc import Callable
from dataclasses import dataclass, field

from scheduler.cache.node_info import PodInfo


@dataclass(frozen=True, slots=True)
class Preemptor:
    """The pod or pod group that preempts (then `pods` are its members and `uid` the group's)."""

    uid: str
    priority: int
    pods: tuple[PodInfo, ...]
    is_group: bool = False

    @property
    def is_bound(self) -> bool:
        """Whether it is a pod that has a node and requests more of it (KEP-5836)."""
        return bool(self.pods[0].spec.node_name)

    @property
    def kind(self) -> str:
        """The kind that conditions and events name."""
        return "podgroup" if self.is_group else "pod"


@dataclass(frozen=True, slots=True)
class Eviction:
    """The victims to evict so that the preemptor can have the node; a group's node is called `cluster`.

    `nodes`: where pods of lower priority lose their nominations. `plugin`: the name in the rejection of a
    victim that is rejected in memory. `is_async`: the scheduling loop does not wait for the calls.
    """

    preemptor: Preemptor
    node: str
    victims: tuple[PodInfo, ...]
    nodes: tuple[str, ...]
    plugin: str
    is_async: bool = True

    @property
    def pending(self) -> tuple[PodInfo, ...]:
        """The victims that are not being deleted yet; the others need no call."""
        return tuple(v for v in self.victims if v.metadata.deletion_timestamp is None)


@dataclass
class RunningPreemptions:
    """The preemptors whose evictions are under way, by uid; they are not scheduled meanwhile.

    While the last victim is being evicted, its own state decides: its delete event may come before the answer
    to the call, and must find its preemptor ready. `is_staying`: whether that pod exists and is not being
    deleted (without an informer every victim counts as alive). `attempts` counts preemption attempts, the
    futile ones too.
    """

    is_staying: Callable[[PodInfo], bool] = lambda victim: True
    _last: dict[str, PodInfo | None] = field(default_factory=dict)
    attempts: int = 0

    def __len__(self) -> int:
        return len(self._last)

    def begin(self, uid: str) -> None:
        """Note that evictions for the preemptor begin."""
        self._last[uid] = None

    def come_to_last(self, uid: str, victim: PodInfo) -> None:
        """Note that only this victim is left to evict."""
        self._last[uid] = victim

    def end(self, uid: str) -> None:
        """Note that the evictions are done or given up."""
        self._last.pop(uid, None)

    def is_running(self, uid: str) -> bool:
        """Whether the preemptor has to wait."""
        if uid not in self._last:
            return False
        victim = self._last[uid]
        return victim is None or self.is_staying(victim)
