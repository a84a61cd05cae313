"""The sweep that deletes expired Events, and the oldest Events if there are too many."""

import asyncio
from collections.abc import Callable

from apiserver_fake.registry.controlplane.event_expiry import EventExpiry
from services.api.seams import Clock
from services.api.wire import Api, Request

EVENTS = "events"
EVENTS_SWEEP_S = 30.0


async def expire_events(expiry: EventExpiry, clock: Clock, api: Callable[[], Api]) -> None:
    """Delete the Events that are due, every 30 s until cancelled; stop early for this time if the server is busy."""
    while True:
        await asyncio.sleep(EVENTS_SWEEP_S)
        for namespace, name in expiry.due(clock.now()):
            request = Request(verb="delete", resource=EVENTS, namespace=namespace, name=name)
            response = await api().call(request)
            if response.code in (429, 503):
                break
