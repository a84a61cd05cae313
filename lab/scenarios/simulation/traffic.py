"""Messages between simulated components and the API server, for what holds them back or records them. Pure."""

from collections.abc import Callable
from typing import Protocol

from services.api.errors import ApiError
from services.api.wire import Request, Response, WatchEvent, WatchRequest

Carried = Request | tuple[Request, Response] | WatchRequest | list[WatchEvent] | ApiError | None
"""What one message holds: a call, a call with its answer, the opening of a watch, a batch, how a watch ended."""


Traffic = Callable[[str, str, Carried, float, float], float]
"""Knows every message that is on its way and may hold it back; `lab.explore.recorder.Recorder.carry` is one.

Called with the component that is not the API server, the way (request, reply or watch), what is carried, when it was
sent and when it is due (virtual seconds); returns when it arrives, then or later.
"""


class ArrivalRecorder(Protocol):
    """Sees what arrives at components; `scenarios.invariants.Auditor` is one."""

    def opened(self, component: str, incarnation: int, user: str, request: WatchRequest) -> int:
        """A component opened a watch; return the number to call it by."""

    def received(self, number: int, batch: list[WatchEvent]) -> None:
        """A batch is about to be handed to the component."""

    def closed(self, number: int) -> None:
        """The watch is over, for whatever reason."""

    def answered(self, request: Request, response: Response) -> None:
        """An answer is about to be handed to the component."""
