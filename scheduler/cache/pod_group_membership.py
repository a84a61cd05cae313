"""The members of pod groups: known as soon as a pod names the group, whether or not the group exists.

Source: preemption 6.3.
"""

from collections.abc import Container, Iterator
from typing import Final

from scheduler.cache.node_info import PodInfo
from services.api.kinds.pod import Pod
from services.api.meta import Key

_NO_MEMBER: Final = (Key("", ""), False)


def group_of(pod: Pod) -> Key | None:
    """Return the key of the pod's group; None for a pod without a group."""
    group = pod.spec.scheduling_group
    return None if group is None else Key(pod.metadata.namespace, group.pod_group_name)


class PodGroups:
    """Members by group: pods that have not ended, waiting, assumed or bound. `is_on`: whether groups are in use."""

    def __init__(self, *, is_on: bool = False) -> None:
        self.is_on = is_on
        self._members: dict[Key, dict[str, tuple[Key, bool]]] = {}
        self._staying: dict[Key, int] = {}

    def group_of(self, pod: PodInfo) -> Key | None:
        """Return the key of the group that the pod is scheduled with."""
        return group_of(pod.pod) if self.is_on else None

    def on_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Take an added, changed or deleted pod."""
        if not self.is_on:
            return
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._drop(old)
        if new is None:
            return
        if new.is_terminal:
            self._drop(new)
            return
        group = group_of(new)
        if group is not None:
            members = self._members.setdefault(group, {})
            uid, stays = new.metadata.uid, new.metadata.deletion_timestamp is None
            _, stayed = members.get(uid, _NO_MEMBER)
            self._staying[group] = self._staying.get(group, 0) - stayed + stays
            members[uid] = (new.metadata.key, stays)

    def _drop(self, pod: Pod) -> None:
        group = group_of(pod)
        members = self._members.get(group) if group is not None else None
        if group is None or members is None:
            return
        self._staying[group] -= members.pop(pod.metadata.uid, _NO_MEMBER)[1]
        if not members:
            del self._members[group], self._staying[group]

    def count_members(self, group: Key) -> int:
        """Return the number of members that are not being deleted."""
        return self._staying.get(group, 0)

    def waiting(self, group: Key, placed: Container[str]) -> Iterator[Key]:
        """Yield the keys of the members that are not placed."""
        for uid, (key, _) in self._members.get(group, {}).items():
            if uid not in placed:
                yield key

    def uids(self, group: Key) -> Iterator[str]:
        """Yield the uids of all members, also those being deleted, in the order in which they were first seen."""
        yield from self._members.get(group, ())
