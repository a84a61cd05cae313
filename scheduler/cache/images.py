"""Which container images are on which nodes, and how large they are.

Source: scheduler-queue-and-cycles 6 (ImageLocality).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from services.api.kinds.node import ContainerImage


@dataclass(slots=True)
class ImageState:
    """`size_bytes` is what the first of the nodes said; upstream does not compare either."""

    size_bytes: int
    rows: dict[int, None] = field(default_factory=dict)


class Images:
    """Images by name; falsy while no node reports any."""

    def __init__(self) -> None:
        self._states: dict[str, ImageState] = {}
        self._by_row: dict[int, tuple[ContainerImage, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._states)

    def get(self, name: str) -> ImageState | None:
        """Return who has the image, or None."""
        return self._states.get(name)

    def set(self, row: int, images: Sequence[ContainerImage]) -> bool:
        """Take in what a node has now; return whether anything changed."""
        new = tuple(images)
        old = self._by_row.get(row, ())
        if new == old:
            return False
        for name in [name for image in old for name in image.names]:
            state = self._states.get(name)
            if state is not None and row in state.rows:
                del state.rows[row]
                if not state.rows:
                    del self._states[name]
        for image in new:
            for name in image.names:
                self._states.setdefault(name, ImageState(image.size_bytes)).rows[row] = None
        if new:
            self._by_row[row] = new
        else:
            self._by_row.pop(row, None)
        return True
