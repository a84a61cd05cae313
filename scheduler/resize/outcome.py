"""The outcome of an attempt for a deferred resize, for queue, loop and messages."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from scheduler.cache.node_info import PodInfo
from scheduler.preemption.progress import Eviction

NAME: Final = "DeferredPodScheduling"
FIT: Final = "NodeResourcesFit"
PREEMPTION: Final = "DefaultPreemption"
FITS: Final = "pod resize fits, waiting for Kubelet actuation"


class Waits(StrEnum):
    """The reasons for which a deferred pod waits."""

    TURN = "turn"
    CAPACITY = "capacity"
    POLICY = "policy"
    PLUGIN = "plugin"
    """It waits for an event that an out-of-tree plugin registered."""
    KUBELET = "kubelet"
    """It fits and is parked until the kubelet looks."""
    NOTHING = "nothing"
    """It fits and is not queued any more."""


@dataclass(frozen=True, slots=True)
class ResizeOutcome:
    """The outcome of an attempt. `plugin` and `reasons` say why the pod cannot grow now; empty when it can.

    `after`: the message of preemption; `others`: those of other PostFilter plugins. `evictions`: the victims.
    `missing`: the amounts that were short, known only where victims were sought (`has_tried`). `is_guarded`:
    victims of an earlier attempt are leaving, and are waited for. `is_pending`: the plugin waits for an
    external actor. `is_error`: not a rejection; a plugin failed.
    """

    pod: PodInfo
    node: str
    waits_for: Waits
    plugin: str = NAME
    reasons: tuple[str, ...] = ()
    after: str = ""
    evictions: tuple[Eviction, ...] = ()
    missing: tuple[tuple[str, int], ...] = ()
    others: tuple[str, ...] = ()
    has_tried: bool = False
    is_guarded: bool = False
    is_pending: bool = False
    is_error: bool = False

    @property
    def fits(self) -> bool:
        """Whether the resize fits, or will as soon as the kubelet looks."""
        return self.waits_for in (Waits.KUBELET, Waits.NOTHING)

    @property
    def eviction(self) -> Eviction | None:
        """The first eviction: only out-of-tree plugins request more than one."""
        return self.evictions[0] if self.evictions else None

    @property
    def victims(self) -> tuple[PodInfo, ...]:
        """All pods that are to be evicted."""
        return tuple(victim for eviction in self.evictions for victim in eviction.victims)

    @property
    def message(self) -> str:
        """The message of the Event, in the words of a fit error over the one node."""
        if self.is_error:
            return f'running plugin "{self.plugin}": {", ".join(self.reasons)}'
        lines = ", ".join(sorted(f"1 {reason}" for reason in self.reasons or (FITS,)))
        after = ", ".join([*([f"preemption: {self.after}"] if self.after else []), *self.others])
        return f"0/1 nodes are available: {lines}." + (f" {after}" if after else "")
