"""Pods that were popped and are not done, and the events since each of them was popped.

A pod that comes back rejected has not seen these events, and one of them may have been what it needs.
Source: scheduler-queue-and-cycles 2.1 and 2.3.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from scheduler.framework.events import ClusterEvent


@dataclass(frozen=True, slots=True)
class Happened:
    """An event with the object before and after; `only_uid`: the only pod it is for, "" for all pods."""

    event: ClusterEvent
    old: Any
    new: Any
    only_uid: str = ""


class InFlight:
    """The pods in flight; events are kept from the pop of the longest-flying pod on."""

    def __init__(self) -> None:
        self._starts: dict[str, int] = {}
        self._events: deque[Happened] = deque()
        self._first = 0

    def __contains__(self, uid: str) -> bool:
        return uid in self._starts

    def __bool__(self) -> bool:
        return bool(self._starts)

    @property
    def event_count(self) -> int:
        """The number of kept events."""
        return len(self._events)

    def begin(self, uid: str) -> None:
        """Keep events for the pod from now on."""
        self._starts[uid] = self._first + len(self._events)

    def note(self, event: ClusterEvent, old: Any, new: Any, only_uid: str = "") -> None:
        """Keep the event, if any pod is in flight."""
        if self._starts:
            self._events.append(Happened(event, old, new, only_uid))

    def since(self, uid: str) -> Iterator[Happened] | None:
        """Yield the events since the pod was popped; None for a pod that is not in flight."""
        start = self._starts.get(uid)
        if start is None:
            return None
        missed = islice(self._events, start - self._first, None)
        return (each for each in missed if each.only_uid in ("", uid))

    def end(self, uid: str) -> None:
        """Remove the pod; events that no pod in flight needs any more are dropped."""
        if self._starts.pop(uid, None) is None:
            return
        oldest = next(iter(self._starts.values()), self._first + len(self._events))  # in the order of their pop
        while self._first < oldest:
            self._events.popleft()
            self._first += 1
