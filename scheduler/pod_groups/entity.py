"""A group as the queue sees it: one thing that waits, is popped and comes back, holding its waiting members.

Source: preemption 6.4.
"""

from typing import Final

from scheduler.cache.node_info import PodInfo
from scheduler.queue.queued_pod import QueuedPod
from services.api.kinds.pod import Pod, PodSpec
from services.api.kinds.podgroup import PodGroup
from services.api.meta import Key, ObjectMeta

_MARK: Final = "podgroup/"
"""No pod's name contains a slash, so an entity's key is no pod's."""


def entity_key(group: Key) -> Key:
    """Return the key under which the group is queued."""
    return Key(group.namespace, _MARK + group.name)


class GroupInfo(PodInfo):
    """Stands for the group where the queue expects a pod. `members`: the waiting ones, by uid.

    Its priority is the group's, as soon as the group is known: it rules the order of the queue, whatever the
    members say of themselves. Its scheduler is the first member's.
    """

    __slots__ = ("group", "members")

    def __init__(self, group: Key, first: QueuedPod) -> None:
        spec = PodSpec(scheduler_name=first.info.spec.scheduler_name)
        uid = f"{_MARK}{group}"
        super().__init__(Pod(metadata=ObjectMeta(name=group.name, namespace=group.namespace, uid=uid), spec=spec))
        self.group = group
        self.key = entity_key(group)
        self.priority = first.info.priority
        self.members: dict[str, QueuedPod] = {first.uid: first}

    def follow(self, group: PodGroup | None) -> None:
        """Take the priority of the group as it is now."""
        if group is not None:
            self.priority = group.spec.priority

    def in_order(self) -> list[QueuedPod]:
        """Return the members in the order in which they are placed: priority, then first attempt, then name."""
        return sorted(self.members.values(), key=_order)


def _order(member: QueuedPod) -> tuple[float, ...] | tuple[float, float, str]:
    return (-member.info.priority, member.initial_attempt or member.timestamp, member.key.name)
