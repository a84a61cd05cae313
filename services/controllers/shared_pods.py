"""Pods for controllers: ready since when, the order of deletion, the pods of each node and the numbers of each owner.

The transition time is in the object, so availability compares it with the wall clock, as upstream does: a
controller that has just started has no other time.
Source: controllers 2; upstream `pkg/api/v1/pod`, `ActivePodsWithRanks` (`pkg/controller/controller_utils.go`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from services.api.kinds.pod import Pod
from services.api.meta import Key, condition_status, find_condition
from services.api.times import seconds_of as seconds_of

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASE_ORDER = {"Pending": 0, "": 0, "Unknown": 1, "Running": 2}


def is_ready(pod: Pod) -> bool:
    """Whether condition Ready is True."""
    return condition_status(pod.status.conditions, "Ready") == "True"


def ready_since_s(pod: Pod) -> float | None:
    """Return the epoch seconds at which the pod became ready, or None when it is not ready."""
    ready = find_condition(pod.status.conditions, "Ready")
    return seconds_of(ready.last_transition_time) if ready is not None and ready.status == "True" else None


def available_in_s(pod: Pod, min_ready_s: int, wall_s: float) -> float | None:
    """Return the seconds until the ready pod counts as available; 0 if it does, None if it is not ready."""
    since = ready_since_s(pod)
    if since is None:
        return None
    return max(0.0, since + min_ready_s - wall_s) if min_ready_s > 0 else 0.0


def in_deletion_order(pods: list[Pod], siblings_by_node: dict[str, int], wall_s: float) -> list[Pod]:
    """Return the pods in the order of deletion, the first to delete at the front.

    Without node; Pending before Unknown before Running; not ready; lower deletion cost; more siblings on its node;
    ready for a shorter time (in powers of two); more restarts; younger.
    Deviates: upstream breaks ties within one power of two by uid before it counts restarts.
    """

    def rank(pod: Pod) -> tuple[object, ...]:
        since = ready_since_s(pod)
        return (
            bool(pod.spec.node_name),
            _PHASE_ORDER.get(pod.status.phase, 3),
            since is not None,
            _cost(pod),
            -siblings_by_node.get(pod.spec.node_name, 0),
            0 if since is None else _power(wall_s - since),
            -max((c.restart_count for c in pod.status.container_statuses), default=0),
            _power(wall_s - seconds_of(pod.metadata.creation_timestamp)),
            pod.metadata.uid,
        )

    return sorted(pods, key=rank)


def _power(seconds: float) -> int:
    return int(math.log2(seconds * 1e9)) if seconds > 0 else -1


def _cost(pod: Pod) -> int:
    try:
        return int(pod.metadata.annotations.get(DELETION_COST, "0"))
    except ValueError:
        return 0


BY_NODE = attrgetter("spec.node_name")
"""Group function: the node that a pod is bound to."""


class PodsBy:
    """Keys of pods by group ("": no group), in the order they were seen there; a watch keeps it up to date.

    It saves a scan of all pods on every reconcile.
    """

    def __init__(self, group_of: Callable[[Pod], str]) -> None:
        self._group_of = group_of
        self._keys: dict[str, dict[Key, None]] = {}

    def note(self, old: Pod | None, new: Pod | None) -> None:
        """Apply a change of a pod."""
        before = self._group_of(old) if old is not None else ""
        after = self._group_of(new) if new is not None else ""
        if before == after:
            return
        if old is not None and (keys := self._keys.get(before)) is not None:
            keys.pop(old.metadata.key, None)
            if not keys:
                del self._keys[before]
        if new is not None and after:
            self._keys.setdefault(after, {})[new.metadata.key] = None

    def of(self, group: str) -> list[Key]:
        """Return the pods of a group."""
        return list(self._keys.get(group, ()))


Labels = tuple[tuple[str, str], ...]


@dataclass
class Count:
    """Pods of one owner with the same labels that have not ended. `ready`: of the active ones."""

    labels: dict[str, str]
    active: int = 0
    ready: int = 0
    ending: int = 0


class _Fact(NamedTuple):
    """What one pod adds to the numbers."""

    owner: str
    labels: Labels
    is_active: bool
    is_ready: bool


class OwnedCounts:
    """Pods by the uid of their controller, with their numbers; a watch keeps both up to date.

    Pods that have ended are left out. A runaway leaves thousands of them with their owner, and they affect no
    decision: upstream filters them out before claiming.
    """

    def __init__(self) -> None:
        self._facts: dict[Key, _Fact] = {}
        self._keys: dict[str, dict[Key, None]] = {}
        self._counts: dict[str, dict[Labels, Count]] = {}

    def note(self, old: Pod | None, new: Pod | None) -> None:
        """Apply a change of a pod."""
        pod = new if new is not None else old
        assert pod is not None
        if not pod.metadata.owner_references and (old is None or not old.metadata.owner_references):
            return
        key = pod.metadata.key
        before, after = self._facts.get(key), _fact_of(new) if new is not None else None
        if before == after:
            return
        if before is not None:
            self._leave(key, before, is_moved=after is None or after.owner != before.owner)
        if after is not None:
            self._enter(key, after)

    def keys_of(self, uid: str) -> list[Key]:
        """Return an owner's pods, in the order in which they became its own."""
        return list(self._keys.get(uid, ()))

    def of(self, uid: str) -> list[Count]:
        """Return the numbers of an owner's pods, one for each set of labels."""
        return list(self._counts.get(uid, {}).values())

    def _enter(self, key: Key, fact: _Fact) -> None:
        self._facts[key] = fact
        self._keys.setdefault(fact.owner, {})[key] = None
        counts = self._counts.setdefault(fact.owner, {})
        count = counts.get(fact.labels)
        if count is None:
            count = counts[fact.labels] = Count(dict(fact.labels))
        _add(count, fact, 1)

    def _leave(self, key: Key, fact: _Fact, *, is_moved: bool) -> None:
        """Take a pod out. `is_moved`: its owner has it no more, so that it also loses its place."""
        counts = self._counts[fact.owner]
        count = counts[fact.labels]
        _add(count, fact, -1)
        if not count.active and not count.ending:
            del counts[fact.labels]
        del self._facts[key]
        if is_moved:
            keys = self._keys[fact.owner]
            del keys[key]
            if not keys:
                del self._keys[fact.owner], self._counts[fact.owner]


def _add(count: Count, fact: _Fact, number: int) -> None:
    if fact.is_active:
        count.active += number
        count.ready += number if fact.is_ready else 0
    else:
        count.ending += number


def _fact_of(pod: Pod) -> _Fact | None:
    reference = None if pod.is_terminal else pod.metadata.controller
    if reference is None:
        return None
    metadata = pod.metadata
    return _Fact(reference.uid, tuple(metadata.labels.items()), metadata.deletion_timestamp is None, is_ready(pod))
