"""The pods of a workload as a watcher sees them: the node of each, and whether it was attempted. Pure.

Source: kubernetes/kubernetes `test/integration/scheduler_perf/util.go`, `getScheduledPods`,
`throughputCollector`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from services.api.meta import Key, View


class SeenMeta(View, frozen=True):
    """The needed fields of a pod's metadata."""

    labels: dict[str, str] = {}


class SeenSpec(View, frozen=True):
    """The needed fields of a pod's spec."""

    node_name: str = ""


class SeenCondition(View, frozen=True):
    """A condition of a pod."""

    type: str = ""
    status: str = ""
    message: str = ""


class SeenStatus(View, frozen=True):
    """The needed fields of a pod's status."""

    conditions: tuple[SeenCondition, ...] = ()


class SeenPod(View, frozen=True):
    """The needed fields of a pod."""

    metadata: SeenMeta = SeenMeta()
    spec: SeenSpec = SeenSpec()
    status: SeenStatus = SeenStatus()

    @property
    def refusal(self) -> SeenCondition | None:
        """The condition that says why the pod has no node."""
        found = (each for each in self.status.conditions if each.type == "PodScheduled" and each.status == "False")
        return next(found, None)

    @property
    def is_attempted(self) -> bool:
        """Whether the pod has a node, was found unschedulable, or is gated."""
        return bool(self.spec.node_name) or self.refusal is not None


class PodState(NamedTuple):
    """A pod's labels, its node (empty for none), and whether it was attempted."""

    labels: Mapping[str, str]
    node: str
    is_attempted: bool


Listener = Callable[[Key, Mapping[str, str]], None]


class Pods:
    """All existing pods. `listeners` are called with key and labels of each pod that gets a node."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self._states: dict[str, dict[str, PodState]] = {}
        self._scheduled: dict[str, int] = {}
        self._attempted: dict[str, int] = {}
        self._refused: dict[str, tuple[str, Callable[[], str]]] = {}
        """The pod of each namespace that was refused last, and what says why."""

    def note_refusal(self, key: Key, why: Callable[[], str]) -> None:
        """Note that a pod got no node; `why` is called when the reason is shown."""
        self._refused[key.namespace] = key.name, why

    def put(self, key: Key, state: PodState) -> None:
        """Store the current state of a pod."""
        before = self._states.setdefault(key.namespace, {}).get(key.name)
        self._states[key.namespace][key.name] = state
        self._count(key.namespace, before, state)
        if state.node and (before is None or not before.node):
            for listener in self.listeners:
                listener(key, state.labels)

    def drop(self, key: Key) -> None:
        """Note that a pod is gone."""
        self._count(key.namespace, self._states.get(key.namespace, {}).pop(key.name, None), None)

    def state(self, key: Key) -> PodState | None:
        """Return the state of a pod; None if it does not exist."""
        return self._states.get(key.namespace, {}).get(key.name)

    def keys(self, namespace: str, labels: Mapping[str, str]) -> list[Key]:
        """Return the pods of a namespace with these labels."""
        return [Key(namespace, name) for name, _ in self._matching(namespace, labels)]

    def count(self, namespace: str, labels: Mapping[str, str], stage: str) -> int:
        """Return the number of pods of a namespace with these labels that are scheduled, or at least attempted, by
        `stage`.
        """
        if not labels:
            return (self._scheduled if stage == "Scheduled" else self._attempted).get(namespace, 0)
        matching = (state for _, state in self._matching(namespace, labels))
        return sum(1 for state in matching if (state.node if stage == "Scheduled" else state.is_attempted))

    def waiting(self, namespace: str, labels: Mapping[str, str]) -> str:
        """Return the name of a pod without a node and, if known, the reason; empty if there is no such pod."""
        names = [name for name, state in self._matching(namespace, labels) if not state.node]
        name, why = self._refused.get(namespace, ("", None))
        if why is not None and name in names:
            return f"{name}: {why()}"
        return names[0] if names else ""

    def _matching(self, namespace: str, labels: Mapping[str, str]) -> Iterator[tuple[str, PodState]]:
        for name, state in self._states.get(namespace, {}).items():
            if labels.items() <= state.labels.items():
                yield name, state

    def _count(self, namespace: str, before: PodState | None, after: PodState | None) -> None:
        for counts, is_old, is_new in (
            (self._scheduled, before is not None and bool(before.node), after is not None and bool(after.node)),
            (self._attempted, before is not None and before.is_attempted, after is not None and after.is_attempted),
        ):
            counts[namespace] = counts.get(namespace, 0) + is_new - is_old
