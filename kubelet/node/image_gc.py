"""Image garbage collection: images deleted when the disk fills up or when they are unused for long. Pure.

Every five minutes the node checks which images it has and which are in use: by containers that run, or have
run and whose pods are still there (the last dead one of each container is kept). From `high_percent` of its
disk on, it deletes unused images, longest unused first, until `low_percent` is used; never an image that it
has not seen for `min_age_s`. Source: kubelet 1; upstream `pkg/kubelet/images/image_gc_manager.go`,
`pkg/kubelet/kubelet.go` (periods, events).
"""

import math
from collections.abc import Collection, Mapping
from typing import Final

import msgspec

PERIOD_S: Final = 300.0
SPACE, AGE = "space", "age"


class ImagePolicy(msgspec.Struct, frozen=True):
    """The policy for deleting images. Shares of the disk in percent, ages in seconds; `max_age_s` 0: no limit."""

    high_percent: int = 85
    low_percent: int = 80
    min_age_s: float = 120.0
    max_age_s: float = 0.0

    def check(self) -> None:
        """Raise ValueError when a kubelet would not start with this policy."""
        high, low = self.high_percent, self.low_percent
        if not 0 <= low < high <= 100:
            raise ValueError(
                f"imageGCHighThresholdPercent: {high}, imageGCLowThresholdPercent: {low}; "
                "want 0 to 100, the first above the second"
            )
        if self.min_age_s < 0 or self.max_age_s < 0 or 0 < self.max_age_s <= self.min_age_s:
            raise ValueError(
                f"imageMaximumGCAge: {self.max_age_s:g} s, imageMinimumGCAge: {self.min_age_s:g} s; "
                "want 0 or more, the first 0 or above the second"
            )


class ImageUse(msgspec.Struct):
    """The times of one image: when a look first saw it, and when a look last saw it in use.

    Minus infinity: before the first look.
    """

    first_seen_s: float
    last_used_s: float = -math.inf


class Collected(msgspec.Struct, frozen=True):
    """The images to delete, each with the reason, and the error ("" for none)."""

    images: tuple[tuple[str, str], ...] = ()
    error: str = ""
    has_failed_twice: bool = False


class ImageCollector:
    """One node's images as its looks found them. Invariant: `_known` has exactly the images of the last look."""

    def __init__(self, policy: ImagePolicy, capacity: int) -> None:
        self._policy, self._capacity = policy, capacity
        self._known: dict[str, ImageUse] = {}
        self._began_s: float | None = None
        self._has_failed = False

    def look(self, now: float, images: Mapping[str, int], in_use: Collection[str]) -> None:
        """Take the present images and those in use."""
        first_s = -math.inf if self._began_s is None else now
        self._began_s = now if self._began_s is None else self._began_s
        self._known = {name: self._known.get(name) or ImageUse(first_s) for name in images}
        for name in self._known:
            if name in in_use:
                self._known[name].last_used_s = now

    def collect(self, now: float, images: Mapping[str, int], in_use: Collection[str], other_use: int) -> Collected:
        """Look, and return the images to delete.

        `images`: sizes in bytes; `other_use`: bytes on that disk besides images.
        """
        self.look(now, images, in_use)
        assert self._began_s is not None
        gone: list[tuple[str, str]] = []
        max_age_s = self._policy.max_age_s
        if max_age_s and now - self._began_s > max_age_s:  # none is too old before the node has run for as long itself
            unused = (name for name in self._in_order() if name not in in_use)
            gone = [(name, AGE) for name in unused if now - self._known[name].last_used_s > max_age_s]
        left = {name: size for name, size in images.items() if (name, AGE) not in gone}
        capacity, policy = self._capacity, self._policy
        available = max(0, capacity - other_use - sum(images.values()))
        error = ""
        if 100 - available * 100 // capacity >= policy.high_percent:
            wanted = capacity * (100 - policy.low_percent) // 100 - available
            unused_images, freed = self._unused_images(now, left, in_use, wanted)
            gone += [(name, SPACE) for name in unused_images]
            if freed < wanted:
                error = (
                    "Failed to garbage collect required amount of images. "
                    f"Attempted to free {wanted} bytes, but only found {freed} bytes eligible to free."
                )
        self._forget(gone)
        had_failed, self._has_failed = self._has_failed, bool(error)
        return Collected(tuple(gone), error, had_failed and bool(error))

    def delete_unused(self, now: float, images: Mapping[str, int], in_use: Collection[str]) -> Collected:
        """Return every unused image for deletion, because the node is short of disk."""
        self.look(now, images, in_use)
        found, _ = self._unused_images(now, images, in_use, math.inf)
        gone = [(name, SPACE) for name in found]
        self._forget(gone)
        return Collected(tuple(gone))

    def _forget(self, gone: list[tuple[str, str]]) -> None:
        for name, _ in gone:
            del self._known[name]

    def _unused_images(
        self, now: float, images: Mapping[str, int], in_use: Collection[str], wanted: float
    ) -> tuple[list[str], int]:
        """Return unused images until their sizes come to what is wanted, and what they come to."""
        names: list[str] = []
        freed = 0
        for name in self._in_order():
            if freed >= wanted:
                break
            if name in images and name not in in_use and now - self._known[name].first_seen_s >= self._policy.min_age_s:
                names.append(name)
                freed += images[name]
        return names, freed

    def _in_order(self) -> list[str]:
        """Return the images, longest unused first."""
        return sorted(self._known, key=lambda n: (self._known[n].last_used_s, self._known[n].first_seen_s, n))
