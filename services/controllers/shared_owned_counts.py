"""Numbers of the pods that each owner has, kept from what changed: a reconcile need not look at every pod again.

Pods with the same labels are counted together, because a selector decides on all of them alike.
"""

from dataclasses import dataclass
from typing import NamedTuple

from services.api.kinds.pod import Pod
from services.api.meta import Key
from services.controllers.shared_pods import is_ready

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
