"""Messages between simulated components and the API server, for code that delays or records them. Pure."""

from collections.abc import Callable
from typing import Protocol

from services.api.errors import ApiError
from services.api.wire import Request, Response, WatchEvent, WatchRequest

Carried = Request | tuple[Request, Response] | WatchRequest | list[WatchEvent] | ApiError | None
"""Content of one message: a call, a call with its response, the opening of a watch, a batch, or the end of a watch."""


Traffic = Callable[[str, str, Carried, float, float], float]
"""Function that sees every message in transit and may delay it; `lab.explore.recorder.Recorder.carry` is
one.

Its arguments are the component that is not the API server, the way (request, reply or watch), the
content, the time it was sent and the time it is due (virtual seconds). It returns the time of arrival:
the due time or later.
"""


class ArrivalRecorder(Protocol):
    """Recorder of messages that arrive at components; `scenarios.invariants.Auditor` is one."""

    def on_watch_opened(self, component: str, incarnation: int, user: str, request: WatchRequest) -> int:
        """Note that a component opened a watch; return the number that identifies it."""

    def on_watch_events(self, number: int, batch: list[WatchEvent]) -> None:
        """Note a batch that is about to be passed to the component."""

    def on_watch_closed(self, number: int) -> None:
        """Note that the watch has ended, for any reason."""

    def on_response(self, request: Request, response: Response) -> None:
        """Note a response that is about to be passed to the component."""
