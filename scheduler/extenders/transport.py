"""The way to an extender, as a seam: processes go by HTTP, tests pass another way to wiring."""

from __future__ import annotations

from typing import Protocol

from scheduler.configuration.document import Extender


class ExtenderTransport(Protocol):
    """Carries one question and its answer."""

    async def post(self, extender: Extender, url: str, body: bytes, timeout_s: float) -> bytes:
        """Return the body of the answer. Raises: ExtenderError when there is none in time, or its status is not 200."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
