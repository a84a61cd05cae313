"""Parked pods by the plugins that rejected them, and by the subjects that their hints compare with an event's.

Most hints can say Queue for any pod. Some only say so for the few pods that name the changed object, such as a claim,
while thousands wait for claims of their own. A plugin that registers such subjects is asked about these pods alone.

Invariant: what `candidates` leaves out has no rejector that would say Queue; what it returns is in the order in which
the pods were parked, by plugin.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

from scheduler.framework.events import ClusterEvent, Registration, Subjects
from scheduler.queue.queued_pod import QueuedPod
from services.api.meta import Key

_ANY: Final = None
"""The subject of pods whose subjects are not known: they are candidates for every event."""
Pods = dict[Key, QueuedPod]


class RejectedPods:
    """The parked pods. `registrations`: those of all profiles, by plugin."""

    def __init__(self, registrations: Iterable[Mapping[str, Sequence[Registration]]]) -> None:
        self._by_plugin: dict[str, Pods] = {}
        self._by_subject: dict[str, dict[Hashable, Pods]] = {}
        self._subjects_of: dict[tuple[str, Key], tuple[Hashable, ...]] = {}
        self._registered = [found for table in registrations for found in table.items()]
        self._subjects: dict[str, Subjects] = {}
        """Of the plugins that registered one, the same for all their events that have any."""
        for plugin, registered in self._registered:
            for subjects in [each.subjects for each in registered if each.subjects is not None]:
                known = self._subjects.setdefault(plugin, subjects)
                assert known == subjects, f"{plugin} registers two kinds of subjects"
        self._narrowing: dict[ClusterEvent, dict[str, Subjects]] = {}

    def add(self, queued: QueuedPod) -> None:
        """Take in a pod that is parked now."""
        for plugin in sorted(queued.rejectors):
            self._by_plugin.setdefault(plugin, {})[queued.key] = queued
            if plugin in self._subjects:
                self._index(plugin, queued)

    def discard(self, queued: QueuedPod) -> None:
        """Take out a pod that is parked no longer."""
        for plugin in sorted(queued.rejectors):
            self._by_plugin.get(plugin, {}).pop(queued.key, None)
            if plugin in self._subjects:
                self._unindex(plugin, queued.key)

    def refresh(self, queued: QueuedPod) -> None:
        """Take in the newer form of a parked pod."""
        for plugin in sorted(queued.rejectors):
            if plugin in self._subjects:
                self._unindex(plugin, queued.key)
                self._index(plugin, queued)

    def candidates(self, event: ClusterEvent, plugins: Sequence[str], old: Any, new: Any) -> list[QueuedPod]:
        """Return the pods that one of the plugins rejected and that the change of this object may help."""
        narrowing = self._narrowing_of(event)
        chosen: Pods = {}
        is_narrowed = False
        for plugin in plugins:
            subjects = narrowing.get(plugin)
            concerned = subjects.of_change(old, new) if subjects is not None else None
            if concerned is None:
                chosen.update(self._by_plugin.get(plugin, {}))
                continue
            is_narrowed = True
            by_subject = self._by_subject.get(plugin, {})
            for subject in (*concerned, _ANY):
                chosen.update(by_subject.get(subject, {}))
        return self._in_order(chosen.values(), plugins) if is_narrowed else list(chosen.values())

    @staticmethod
    def _in_order(pods: Iterable[QueuedPod], plugins: Sequence[str]) -> list[QueuedPod]:
        """Return the pods in the order in which they come where all are asked: by plugin, then as they were parked."""
        place = {plugin: at for at, plugin in enumerate(plugins)}
        return sorted(pods, key=lambda each: (min(place[p] for p in each.rejectors if p in place), each.ticket))

    def _narrowing_of(self, event: ClusterEvent) -> dict[str, Subjects]:
        """Return the subjects of the plugins whose registrations for such an event all have some, in all profiles."""
        narrowing = self._narrowing.get(event)
        if narrowing is None:
            without = {
                plugin
                for plugin, registered in self._registered
                for each in registered
                if event.matches(each.event) and each.subjects is None
            }
            narrowing = {plugin: each for plugin, each in self._subjects.items() if plugin not in without}
            self._narrowing[event] = narrowing
        return narrowing

    def _index(self, plugin: str, queued: QueuedPod) -> None:
        known = self._subjects[plugin].of_pod(queued.info)
        subjects = self._subjects_of[plugin, queued.key] = (_ANY,) if known is None else known
        by_subject = self._by_subject.setdefault(plugin, {})
        for subject in subjects:
            by_subject.setdefault(subject, {})[queued.key] = queued

    def _unindex(self, plugin: str, key: Key) -> None:
        by_subject = self._by_subject.get(plugin, {})
        for subject in self._subjects_of.pop((plugin, key), ()):
            pods = by_subject[subject]
            del pods[key]
            if not pods:
                del by_subject[subject]
