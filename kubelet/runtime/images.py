"""The images of one node: the present ones, and the order of pulls. Pure.

Pods share images that one of them has pulled. Pulls are made one after the other, in the order of requests,
unless the node pulls in parallel. An image that is being pulled, or is present already, costs another pod
only a request to the registry. Source: kubelet 8; upstream `pkg/kubelet/images/puller.go`,
`serializeImagePulls`, `maxParallelImagePulls`.
"""

from collections.abc import Callable, Mapping
from typing import Final

ASK_S: Final = 0.2
"""Seconds of a request to the registry that finds nothing to fetch."""
BYTES_PER_S: Final = 50_000_000
REPORTED_MAX: Final = 50
"""Maximal number of images in the Node's status (upstream `nodeStatusMaxImages`)."""


class NodeImages:
    """The images of one node.

    Invariant: `_lanes` has the time at which each puller is free again; empty: pulls are unlimited.
    """

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
        """Queue a pull; return when it begins and when it ends. `takes_s`: its seconds if the image is not present."""
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
        """Note when a pull that will succeed ends."""
        self._coming.setdefault(image, at_s)

    def add(self, image: str, takes_s: float, now: float) -> None:
        """Add a pulled image; its size follows from the duration of the pull."""
        self._coming.pop(image, None)
        size = self.collected.pop(image, None)
        if image not in self.present:
            self.present[image] = int(max(0.0, takes_s - ASK_S) * BYTES_PER_S) if size is None else size
            self.on_change(now)

    @property
    def total(self) -> int:
        """The total bytes of the present images."""
        return sum(self.present.values())

    def delete(self, image: str, now: float) -> None:
        """Remove an image from the node."""
        self.collected[image] = self.present.pop(image)
        self.on_change(now)

    def takes_s(self, image: str) -> float:
        """Return the seconds that another pull of a deleted image takes."""
        return self.collected.get(image, 0) / BYTES_PER_S + ASK_S

    def status_images(self) -> tuple[tuple[str, int], ...]:
        """Return names and sizes for the Node's status, the largest first."""
        return tuple(sorted(self.present.items(), key=lambda each: (-each[1], each[0]))[:REPORTED_MAX])
