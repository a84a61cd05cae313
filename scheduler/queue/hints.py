"""The decision whether an event makes a rejected pod worth another attempt.

Each plugin registers the events that may change its rejection and, for each, a function that checks the
objects. Only the plugins that rejected the pod are asked. Source: KEP-4247; scheduler-queue-and-cycles 2.3.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from scheduler.framework.events import ClusterEvent, Hint, Registration
from scheduler.framework.failures import failure_of
from scheduler.framework.timing import Turns, Watch
from scheduler.queue.queued_pod import QueuedPod

_NOTHING: dict[str, Sequence[Registration]] = {}


class Strategy(Enum):
    """The effect of an event on a rejected pod."""

    SKIP = 0
    AFTER_BACKOFF = 1
    IMMEDIATELY = 2


class Hints:
    """The hints of all profiles. `by_profile`: registrations by schedulerName and plugin."""

    def __init__(self, by_profile: Mapping[str, Mapping[str, Sequence[Registration]]]) -> None:
        self._by_profile = by_profile
        self._interest: dict[ClusterEvent, list[str]] = {}
        self._matching: dict[ClusterEvent, dict[tuple[str, str], Sequence[Registration]]] = {}
        """What each plugin of each profile registered for an event."""
        self.watch: Watch | None = None
        self._turns = Turns()
        self.said_by = ""
        """The plugin whose hint the last answer of `worth` follows, "" for none."""

    def registrations_of(self, queued: QueuedPod, plugin: str) -> Sequence[Registration]:
        """Return the plugin's registrations in the pod's profile."""
        return self._by_profile.get(queued.info.spec.scheduler_name, _NOTHING).get(plugin, ())

    def interested_plugins(self, event: ClusterEvent) -> list[str]:
        """Return the plugins that registered for such an event, in any profile."""
        plugins = self._interest.get(event)
        if plugins is None:
            interested = {
                plugin: None
                for table in self._by_profile.values()
                for plugin, registered in table.items()
                if any(event.matches(registration.event) for registration in registered)
            }
            plugins = self._interest[event] = list(interested)
        return plugins

    def gate_cares(self, queued: QueuedPod, event: ClusterEvent) -> bool:
        """Whether the plugin that gates the pod registered for such an event."""
        return bool(self._matching_of(event, queued, queued.gating_plugin))

    def _matching_of(self, event: ClusterEvent, queued: QueuedPod, plugin: str) -> Sequence[Registration]:
        """Return what the plugin registered for such an event in the pod's profile."""
        by_plugin = self._matching.get(event)
        if by_plugin is None:
            by_plugin = self._matching[event] = {}
        key = queued.info.spec.scheduler_name, plugin
        registered = by_plugin.get(key)
        if registered is None:
            registered = by_plugin[key] = [
                each for each in self.registrations_of(queued, plugin) if event.matches(each.event)
            ]
        return registered

    def worth(self, queued: QueuedPod, event: ClusterEvent, old: Any, new: Any) -> Strategy:
        """Return the event's effect on the pod."""
        rejectors, self.said_by = queued.rejectors, ""
        if not rejectors or event.is_wildcard:
            return Strategy.AFTER_BACKOFF
        strategy = Strategy.SKIP
        for plugin in sorted(rejectors):
            is_pending = plugin in queued.pending_plugins
            if strategy is not Strategy.SKIP and not is_pending:
                continue
            for registration in self._matching_of(event, queued, plugin):
                if self._says_queue(registration, plugin, queued, event, old, new):
                    self.said_by = plugin
                    if is_pending:
                        return Strategy.IMMEDIATELY
                    strategy = Strategy.AFTER_BACKOFF
                    break
        return strategy

    def _says_queue(
        self, registration: Registration, plugin: str, queued: QueuedPod, event: ClusterEvent, old: Any, new: Any
    ) -> bool:
        watch = self.watch if self.watch is not None and self._turns.is_next() else None
        began = watch.now() if watch is not None else 0.0
        try:
            answer = registration.hint is None or registration.hint(queued.info, old, new) is Hint.QUEUE
        except Exception as error:  # a broken hint must not make a pod wait for ever: it counts as Queue
            failure_of(error, f"queueing hint for {event.label}", plugin)
            answer = True
        if watch is not None:
            watch.hint(plugin, event.label, Hint.QUEUE if answer else Hint.SKIP, watch.now() - began)
        return answer
