"""Changes wait while a cycle does: what it decides must hold for the nodes that it looked at (decision 0011)."""

from collections.abc import Callable
from typing import Any


class HeldChanges:
    """Passes changes on at once, or in their order when the waiting cycle is over."""

    def __init__(self) -> None:
        self._held: list[tuple[Callable[[Any], None], Any]] | None = None

    def handle(self, handler: Callable[[Any], None], change: Any) -> None:
        """Hand the change to the handler, now or on `release`."""
        if self._held is None:
            handler(change)
        else:
            self._held.append((handler, change))

    def hold(self) -> None:
        """Keep changes from now on."""
        if self._held is None:
            self._held = []

    def release(self) -> None:
        """Pass on what was kept; afterwards changes are handled at once again."""
        while self._held:
            handler, change = self._held.pop(0)
            handler(change)
        self._held = None
