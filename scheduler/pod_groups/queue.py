"""The scheduling queue with groups as entities: members wait together, are popped together, and return together.

Members are in no pool one by one. The underlying queue has one entry per group, whose gates and hints are
those of its members: any member's rejection keeps the group out, any member's hint wakes it. With
`one_by_one` (gangs of 1.35) members are queued as all pods are, and each arrival is an event for the
others.

Invariant: every member is in `_members`; it is in its entity's `members` exactly while it waits, not while
it is on its way to a bind. Source: preemption 6.4; upstream `pkg/scheduler/backend/queue` 1.37.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from scheduler.cache.node_info import PodInfo
from scheduler.cache.pod_group_membership import PodGroups
from scheduler.framework.events import (
    FORCE_ACTIVATE,
    SCHEDULE_ATTEMPT_FAILURE,
    UNSCHEDULED_POD_ADD,
    UNSCHEDULED_POD_UPDATE,
    ClusterEvent,
    Hint,
    Registration,
)
from scheduler.framework.status import SUCCESS, Status
from scheduler.framework.world import World
from scheduler.metrics import PENDING_PODS, QUEUES
from scheduler.queue.hints import Strategy
from scheduler.queue.scheduling_queue import PARKED, POD_DELETED, Pool, QueuedPod, SchedulingQueue
from services.api.kinds.pod import Pod, PodSpec
from services.api.kinds.podgroup import PodGroup
from services.api.meta import Key, ObjectMeta
from services.telemetry.metrics import Metrics, Samples, gauge

_MARK: Final = "podgroup/"
"""Prefix of an entity's key; a pod's name contains no slash, so the key is not a pod's."""


def entity_key(group: Key) -> Key:
    """Return the key under which the group is queued."""
    return Key(group.namespace, _MARK + group.name)


class GroupInfo(PodInfo):
    """The group's stand-in where the queue expects a pod. `members`: the waiting ones, by uid.

    Its priority is the group's, as soon as the group is known: it decides the order of the queue, whatever the
    members' own priorities are. Its scheduler is the first member's.
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

    def in_order(self) -> list[QueuedPod]:
        """Return the members in the order in which they are placed: priority, then first attempt, then name."""
        members = self.members.values()
        return sorted(members, key=lambda m: (-m.info.priority, m.initial_attempt or m.timestamp, m.key.name))


@dataclass(kw_only=True)
class GroupedQueue(SchedulingQueue):
    """A queue of pods and groups.

    Without `has_hints` a rejected group comes back when its back-off ends, not before.
    """

    groups: PodGroups
    world: World
    is_one_by_one: bool = False
    has_hints: bool = True
    group_backoff_max_s: float = 10.0

    def __post_init__(self) -> None:
        self._members: dict[Key, QueuedPod] = {}
        self._member_keys: dict[str, Key] = {}
        self._ask_gates, self.pre_enqueue = self.pre_enqueue, self._pre_enqueue_all
        self.registrations_by_profile = {
            profile: {plugin: [_of_any_member(r) for r in found] for plugin, found in table.items()}
            for profile, table in self.registrations_by_profile.items()
        }
        super().__post_init__()

    def _pre_enqueue_all(self, info: PodInfo, first: str) -> Status:
        if not isinstance(info, GroupInfo):
            return self._ask_gates(info, first)
        group = self.world.get(PodGroup, info.group)
        if group is not None:
            info.priority = group.spec.priority
        for member in info.members.values():
            status = self._ask_gates(member.info, first)
            if not status.is_success:
                return status
        return SUCCESS

    def _report_gate(self, queued: QueuedPod, status: Status, now: float) -> None:
        for each in queued.info.members.values() if isinstance(queued.info, GroupInfo) else (queued,):
            self.on_gate(each, status, now)

    def _report_move(self, queued: QueuedPod, pool: Pool, by: str) -> None:
        if not isinstance(queued.info, GroupInfo):
            super()._report_move(queued, pool, by)
            return
        gated_by = queued.gating_plugin if pool is Pool.GATED else ""
        for member in queued.info.members.values():
            # Of a group that stays at its gate when a member joins, only that member has moved.
            if not gated_by or member.gating_plugin != gated_by:
                member.gating_plugin = gated_by
                super()._report_move(member, pool, by)

    def get(self, key: Key) -> QueuedPod | None:
        """Return the queued (or in-flight) pod of that key; for a member, its group."""
        member = self._members.get(key)
        entity = self._entity(member) if member is not None else None
        if member is not None and entity is not None:
            member.pool, member.gating_plugin = entity.pool, entity.gating_plugin
        return super().get(key) if member is None else member

    def all(self) -> list[QueuedPod]:
        """Return all pods, members instead of their groups."""
        members = (member for key in self._members if (member := self.get(key)) is not None)
        return [*(q for q in super().all() if not isinstance(q.info, GroupInfo)), *members]

    def entities(self) -> list[QueuedPod]:
        """Return the queued groups."""
        return [q for q in super().all() if isinstance(q.info, GroupInfo)]

    def by_uid(self, uid: str) -> QueuedPod | None:
        """Return the queued pod of that uid."""
        key = self._member_keys.get(uid)
        return super().by_uid(uid) if key is None else self.get(key)

    def is_in_flight(self, uid: str) -> bool:
        """Whether the pod, or its group, was popped and is not done."""
        member = self.by_uid(uid) if uid in self._member_keys else None
        return super().is_in_flight(uid) if member is None else member.pool is Pool.IN_FLIGHT

    def next_attempt(self, queued: QueuedPod) -> float | None:
        """Return when time alone makes the pod, or its group, ready."""
        return super().next_attempt(self._entity(queued) or queued)

    def wakes_on(self, queued: QueuedPod) -> list[str]:
        """Return the events that may wake the pod, or its group."""
        return super().wakes_on(self._entity(queued) or queued)

    def _entity(self, member: QueuedPod) -> QueuedPod | None:
        """Return the entry in which the pod waits as a member."""
        group = self._group(member.info)
        entity = self._pods.get(entity_key(group)) if group is not None else None
        return entity if entity is not None and member.uid in _members_of(entity) else None

    def _group(self, info: PodInfo) -> Key | None:
        # A member that waits on its node for capacity to grow does so alone (KEP-5836).
        if self.is_one_by_one or isinstance(info, GroupInfo) or info.spec.node_name:
            return None
        return self.groups.group_of(info)

    def add(
        self, info: PodInfo, now: float, *, traceparent: str = "", event: ClusterEvent = UNSCHEDULED_POD_ADD
    ) -> None:
        """Add a pod that waits for a node; a member joins its group and makes the group worth a try."""
        if self._group(info) is None:
            super().add(info, now, traceparent=traceparent, event=event)
            if self.groups.group_of(info) is not None:
                self.move_all(UNSCHEDULED_POD_ADD, None, info.pod, now)
            return
        member = QueuedPod(info, now, initial_attempt=now, attempts=info.attempts, traceparent=traceparent)
        self._join(member, event, now)
        self.nominator.update(None, info)

    def add_after(
        self, info: PodInfo, now: float, not_before: float, event: ClusterEvent, *, traceparent: str = ""
    ) -> QueuedPod:
        """Add a pod that must not be tried before `not_before`; its whole group waits with it."""
        if self._group(info) is None:
            return super().add_after(info, now, not_before, event, traceparent=traceparent)
        member = QueuedPod(
            info, now, initial_attempt=now, attempts=info.attempts, not_before=not_before, traceparent=traceparent
        )
        self._join(member, event, now)
        return member

    def _join(self, member: QueuedPod, event: ClusterEvent, now: float) -> None:
        if member.key in self._members:
            self.delete(member.key)
        self._members[member.key] = member
        self._member_keys[member.uid] = member.key
        entity = self._enter_group(member)
        if entity.uid in self._in_flight:
            # It waits for the end of the cycle; if that fails, there is now a reason to try again.
            self._in_flight.note(FORCE_ACTIVATE, None, None, entity.uid)
        elif entity.pool in PARKED or entity.pool is Pool.NONE or member.not_before:
            self._leave(entity)
            entity.not_before = max(entity.not_before, member.not_before)
            self._requeue(entity, Strategy.AFTER_BACKOFF, event, now)

    def _enter_group(self, member: QueuedPod) -> QueuedPod:
        """Put the member into its group's entry; a group that has none gets one, in no pool yet."""
        group = self.groups.group_of(member.info)
        assert group is not None
        entity = self._pods.get(entity_key(group))
        if entity is None:
            info, since, cause = GroupInfo(group, member), member.timestamp, member.traceparent
            entity = QueuedPod(info, since, traceparent=cause, backoff_max_s=self.group_backoff_max_s)
            self._take_in(entity)
        else:
            _members_of(entity)[member.uid] = member
            member.gating_plugin = entity.gating_plugin
            self._report_move(member, entity.pool, entity.moved_by)
        member.pool = Pool.NONE
        return entity

    def update(
        self, info: PodInfo, now: float, events: Sequence[tuple[ClusterEvent, Pod]] = (), *, traceparent: str = ""
    ) -> None:
        """Replace a pod by its newer form; a member's changes may wake its group."""
        member = self._members.get(info.key)
        if member is None or member.uid != info.uid:
            if self._group(info) is None:
                super().update(info, now, events, traceparent=traceparent)
            else:
                self.add(info, now, traceparent=traceparent, event=UNSCHEDULED_POD_UPDATE)
            return
        old, member.info = member.info, info
        info.attempts = max(info.attempts, old.attempts)
        entity = self._entity(member)
        if entity is None or entity.uid in self._in_flight:
            for event, before in events if entity is not None else ():
                self._in_flight.note(event, before, info.pod, entity.uid if entity is not None else "")
            return
        member.traceparent = traceparent or member.traceparent
        self.nominator.update(old, info)
        for event, before in events:
            strategy = self._hints.worth(entity, event, before, info.pod)
            if entity.pool in PARKED and strategy is not Strategy.SKIP:
                self._requeue(entity, strategy, event, now, self._hints.said_by)

    def delete(self, key: Key) -> QueuedPod | None:
        """Forget the pod and its nomination; a group without waiting members is not queued."""
        member = self._members.get(key)
        if member is None:
            return super().delete(key)
        self._part(member)
        self.nominator.remove(member.uid)
        return member

    def _part(self, member: QueuedPod) -> None:
        entity = self._entity(member)
        del self._members[member.key], self._member_keys[member.uid]
        self._report_move(member, Pool.NONE, POD_DELETED)
        member.pool = Pool.NONE
        if entity is not None:
            _members_of(entity).pop(member.uid)
            if not _members_of(entity) and entity.uid not in self._in_flight:
                super().delete(entity.key)

    def pop(self, now: float) -> QueuedPod | None:
        """Return the next pod or group to try; a group's members count the attempt."""
        queued = super().pop(now)
        if queued is not None and isinstance(queued.info, GroupInfo):
            for member in queued.info.members.values():
                member.attempts += 1
                member.info.attempts = member.attempts
                member.unschedulable_plugins, member.pending_plugins = set(), set()
                member.not_before = 0.0
        return queued

    def place(self, entity: QueuedPod, member: QueuedPod) -> None:
        """Take the member out of the group, because it is on its way to a bind."""
        _members_of(entity).pop(member.uid, None)
        member.pool = Pool.IN_FLIGHT

    def end_attempt(
        self,
        entity: QueuedPod,
        now: float,
        *,
        rejectors: Iterable[str] = (),
        pending: Iterable[str] = (),
        has_placed: bool,
    ) -> None:
        """End the group's cycle.

        Members without a node come back: at once after a success, else as any rejected pod.
        """
        if not _members_of(entity):
            super().on_bound(entity)
            return
        if has_placed:
            # The next cycle may preempt for the rest; its turn is that of its old timestamp.
            self._in_flight.end(entity.uid)
            self._leave(entity)
            entity.unschedulable_count = entity.consecutive_errors = 0
            self._move_to_active(entity, SCHEDULE_ATTEMPT_FAILURE, now)
            return
        for member in _members_of(entity).values():
            entity.not_before = max(entity.not_before, member.not_before)
        super().add_unschedulable(entity, now, rejectors=rejectors, pending=pending)
        if not self.has_hints:
            # Nothing but the clock wakes it, so an idle scheduler must not either (KEP-5142).
            entity.not_before = max(entity.not_before, self._backoff_of.expiration(entity))
            super().move(entity.key, SCHEDULE_ATTEMPT_FAILURE, now)

    def done(self, uid: str) -> None:
        """End the pod's flight; a member's flight ends with its group's."""
        if uid not in self._member_keys:
            super().done(uid)

    def on_bound(self, queued: QueuedPod) -> None:
        """Forget a pod whose binding is under way."""
        if isinstance(queued.info, GroupInfo) or self._group(queued.info) is None:
            super().on_bound(queued)
        elif self._members.get(queued.key) is queued:
            self._part(queued)

    def add_unschedulable(
        self, queued: QueuedPod, now: float, *, rejectors: Iterable[str] = (), pending: Iterable[str] = ()
    ) -> None:
        """Put back a pod whose attempt failed.

        A member of a group that is being tried waits for the end of that; a member whose bind failed joins its
        group again.
        """
        if self._group(queued.info) is None:
            super().add_unschedulable(queued, now, rejectors=rejectors, pending=pending)
            return
        queued.unschedulable_plugins, queued.pending_plugins = set(rejectors), set(pending)
        if self._members.get(queued.key) is not queued or self._entity(queued) is not None:
            return
        queued.timestamp = now
        entity = self._enter_group(queued)
        if entity.uid in self._in_flight:
            self._in_flight.note(FORCE_ACTIVATE, None, None, entity.uid)
        elif entity.pool is Pool.NONE:
            super().add_unschedulable(entity, now, rejectors=rejectors, pending=pending)
        elif entity.pool in PARKED:
            self._requeue(entity, Strategy.AFTER_BACKOFF, SCHEDULE_ATTEMPT_FAILURE, now)

    def move(self, key: Key, event: ClusterEvent, now: float) -> bool:
        """Wake one rejected pod, or its group, after its back-off."""
        return super().move(self._waiting_key(key), event, now)

    def activate(self, keys: Iterable[Key], now: float) -> None:
        """Force pods, or their groups, to the active queue."""
        super().activate(dict.fromkeys(self._waiting_key(key) for key in keys), now)

    def _waiting_key(self, key: Key) -> Key:
        member = self._members.get(key)
        entity = self._entity(member) if member is not None else None
        return key if entity is None else entity.key

    def metrics(self) -> Samples:
        """Return the numbers of waiting entities and members by pool (preemption 5)."""
        members = {"incomplete": 0, "pending": 0}
        groups = dict.fromkeys(Pool, 0)
        for entity in self.entities():
            groups[entity.pool] += 1
            members["incomplete" if entity.pool is Pool.GATED else "pending"] += len(_members_of(entity))
        waiting = Waiting({}, {})
        for queue, pools in QUEUES.items():
            of_groups = sum(groups[pool] for pool in pools)
            waiting.pods[queue] = sum(self.pools[pool] for pool in pools) - of_groups
            waiting.entities[queue, "PodGroup"], waiting.entities[queue, "Pod"] = of_groups, waiting.pods[queue]
        waiting.pods.update(members)
        return METRICS.of(waiting)


class Waiting(NamedTuple):
    """The numbers of waiting entities by queue and type, and of pods by queue."""

    entities: dict[tuple[str, ...], float]
    pods: dict[str, float]


METRICS: Final[Metrics[Waiting]] = Metrics(
    gauge("scheduler_queued_entities", "Groups and pods that wait.", lambda found: found.entities, "queue", "type"),
    gauge(*PENDING_PODS, lambda found: found.pods, "queue"),
)


def _members_of(entity: QueuedPod) -> dict[str, QueuedPod]:
    assert isinstance(entity.info, GroupInfo)
    return entity.info.members


def _of_any_member(registration: Registration) -> Registration:
    """Return the registration with a hint that asks for every member of a group: one Queue is enough."""
    hint = registration.hint
    if hint is None:
        return registration

    def ask(info: PodInfo, old: Any, new: Any) -> Hint:
        if not isinstance(info, GroupInfo):
            return hint(info, old, new)
        is_worth = any(hint(member.info, old, new) is Hint.QUEUE for member in info.members.values())
        return Hint.QUEUE if is_worth else Hint.SKIP

    return Registration(registration.event, ask)
