"""The images of one node: which are there, and who may pull next. Pure.

Pods share what one of them has pulled. Pulls are made one after the other, in the order they were asked for, unless
the node pulls in parallel. An image that is being pulled, or is there already, costs another pod only a
question. Source: kubelet 8; upstream `pkg/kubelet/images/puller.go`, `serializeImagePulls`, `maxParallelImagePulls`.
"""

from collections.abc import Callable, Mapping
from typing import Final

ASK_S: Final = 0.2
"""How long it takes to learn from the registry that nothing has to be fetched."""
BYTES_PER_S: Final = 50_000_000
REPORTED_MAX: Final = 50
"""So many images at most stand in the Node's status (upstream `nodeStatusMaxImages`)."""


class NodeImages:
    """Invariant: `_lanes` has the moments at which each puller is free again; none: as many pull as want to."""

    def __init__(self, present: Mapping[str, int] | None = None, *, pullers: int = 1) -> None:
        self.present: dict[str, int] = dict(present or {})
        """Sizes in bytes, by name."""
        self.fetched: dict[str, None] = {}
        """Images that pods have pulled in no time, so that nothing is known of their sizes; the Node does not list
        them, and none is ever deleted."""
        self.collected: dict[str, int] = {}
        """Sizes of images that were deleted because the disk was full; a pod that needs one pulls it again."""
        self.on_change: Callable[[float], None] = lambda now: None
        self._lanes = [0.0] * pullers
        self._coming: dict[str, float] = {}

    def pull(self, image: str, now: float, takes_s: float) -> tuple[float, float]:
        """Take a place in the queue; return when the pull begins and when it ends. `takes_s`: if nothing is there."""
        if image in self.present:
            takes_s = min(takes_s, ASK_S)
        elif (comes_s := self._coming.get(image)) is not None and comes_s > now:
            takes_s = max(comes_s - now if not self._lanes else 0.0, min(takes_s, ASK_S))
        if not self._lanes:
            return now, now + takes_s
        lane = min(range(len(self._lanes)), key=self._lanes.__getitem__)
        begin_s = max(now, self._lanes[lane])
        self._lanes[lane] = begin_s + takes_s
        return begin_s, begin_s + takes_s

    def expect(self, image: str, at_s: float) -> None:
        """A pull that will succeed ends then."""
        self._coming.setdefault(image, at_s)

    def add(self, image: str, takes_s: float, now: float) -> None:
        """The image is here, after so long a pull, from which its size follows."""
        self._coming.pop(image, None)
        size = self.collected.pop(image, None)
        if image not in self.present:
            self.present[image] = int(max(0.0, takes_s - ASK_S) * BYTES_PER_S) if size is None else size
            self.on_change(now)

    @property
    def total(self) -> int:
        """How many bytes the images here come to."""
        return sum(self.present.values())

    def delete(self, image: str, now: float) -> None:
        """The image is on the node no more."""
        self.collected[image] = self.present.pop(image)
        self.on_change(now)

    def takes_s(self, image: str) -> float:
        """Return how long a deleted image takes to pull again."""
        return self.collected.get(image, 0) / BYTES_PER_S + ASK_S

    def reported(self) -> tuple[tuple[str, int], ...]:
        """Return names and sizes for the Node's status, the largest first."""
        return tuple(sorted(self.present.items(), key=lambda each: (-each[1], each[0]))[:REPORTED_MAX])
