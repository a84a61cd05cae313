"""The handlers of watch changes: they update cache, queue and exclusions.

Level-triggered where it matters: the meaning of a pod's change is decided by comparing the pod with the
cache, not with the event before, so that compacted, repeated or relisted changes come out right. Writes
that are needed are returned as effects. Source: scheduler-queue-and-cycles 2.4; kubelet-unbinding 7.1.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from scheduler.cache.cache import Cache, PodState
from scheduler.cache.node_info import PodInfo
from scheduler.cache.pod_group_membership import PodGroups
from scheduler.cycle.profiles import Profiles
from scheduler.framework.events import (
    ASSIGNED_POD,
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    EXCLUSION_EXPIRED,
    NODE,
    NODE_ADD,
    NODE_DELETE,
    UNBOUND,
    UNSCHEDULED_POD,
    Action,
    ClusterEvent,
)
from scheduler.queue.exclusions import Exclusions
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.resize.accounting import Accounting
from scheduler.resize.deferred_pods import DeferredPods
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.api.seams import Random

BACKOFF_JITTER: Final = 0.1
UNBIND_BACKOFF_MAX_S: Final = 60.0
"""Longest extra back-off of a pod that was unbound again and again, in seconds (kubelet-unbinding 7.2)."""
UNPREPARED: Final = "FailedPrepareDynamicResources"
CORRUPTED: Final = (
    "Pod updated on a different node than previously added to: pod {pod}, was on {old!r}, is on {new!r}; "
    "scheduler cache is corrupted and can badly affect scheduling decisions"
)
"""The message that upstream logs before exit status 1 (kubelet-unbinding 3.1)."""


@dataclass(frozen=True, slots=True)
class Unbound:
    """The effect of an unbind: an Event is recorded, and the pod's next attempt waits `delay_s`."""

    pod: PodInfo
    node_name: str
    reason: str
    attempt: int
    delay_s: float


@dataclass(frozen=True, slots=True)
class ClearNomination:
    """The effect that clears a nomination to a node that no longer exists (K4)."""

    pod: PodInfo


@dataclass(frozen=True, slots=True)
class Crash:
    """The effect that ends the process as upstream's cache would, while unbinding is off."""

    message: str


@dataclass(frozen=True, slots=True)
class ResizeEnded:
    """The effect when a pod no longer waits for capacity to grow."""

    pod: PodInfo


Effect = Unbound | ClearNomination | Crash | ResizeEnded
UNCHANGED: Final[Sequence[Effect]] = ()
"""What a change leads to that moved nothing in the queue: nobody need look at it."""


@dataclass
class EventHandlers:
    """Handles changes: only pods of the profiles are queued; all bound pods are counted.

    `unbinding`: the feature gate PodUnbinding; off is upstream's behaviour, faithful to its crash. `groups`
    follow every pod; None without groups. `resizes` follow pods that wait on their nodes to grow. `accounting`:
    how pods on nodes are counted, None for the usual way.
    """

    cache: Cache
    queue: SchedulingQueue
    exclusions: Exclusions
    profiles: Profiles
    random: Random
    unbinding: bool = True
    groups: PodGroups | None = None
    resizes: DeferredPods | None = None
    accounting: Accounting | None = None
    _late: list[Callable[[], list[Effect]]] = field(default_factory=list)

    @property
    def is_behind(self) -> bool:
        """Whether queue or cache has yet to follow a change that the other has (kep-5836 13.4)."""
        return bool(self._late)

    def catch_up(self) -> list[Effect]:
        """Apply the pending changes, so that queue and cache agree."""
        late, self._late = self._late, []
        return [effect for half in late for effect in half()]

    def on_pod(self, old: Pod | None, new: Pod | None, now: float, traceparent: str = "") -> Sequence[Effect]:
        """Take an added, changed or deleted pod."""
        if self._late:
            return [*self.catch_up(), *self.on_pod(old, new, now, traceparent)]
        if old is not None and new is not None and old.metadata.uid != new.metadata.uid:
            # Deleted and created again between two events.
            return [*self.on_pod(old, None, now), *self.on_pod(None, new, now, traceparent)]
        if self.groups is not None:
            self.groups.on_pod(old, new)
        if new is None or new.is_terminal:
            gone = new if new is not None else old
            return [] if gone is None else self._on_deleted(gone, now)
        state = self.cache.pods.get(new.metadata.uid)
        info = PodInfo(new, state.pod if state is not None else None)
        if self.accounting is not None:
            self.accounting.apply(info)
        if new.spec.node_name:
            effects = self._on_assigned(info, state, now, traceparent)
            expected = old.status.nominated_node_name if old is not None and not old.spec.node_name else ""
            if expected not in ("", new.spec.node_name):
                # It went elsewhere; what was kept for it is free.
                self._free_nomination(info, expected, now)
                return list(effects)
            return effects
        if state is None:
            return self._waiting(info, old, now, traceparent)
        return self._on_unassigned(info, state, now, traceparent)

    def _on_assigned(self, info: PodInfo, state: PodState | None, now: float, traceparent: str) -> Sequence[Effect]:
        node = info.spec.node_name
        if state is not None and state.node_name != node:
            if not self.unbinding:
                return [Crash(CORRUPTED.format(pod=info.key, old=state.node_name, new=node))]
            # Unbound and bound again between two events (or bound by another scheduler than we thought).
            self._leave_node(state, now)
            state = None
        if state is None or state.assumption is not None:
            was_queued = self.queue.delete(info.key)
            if was_queued is not None:
                info.attempts = was_queued.attempts
            self.cache.add_pod(info, node)
            self.exclusions.learn(info.pod, now)
            self.queue.nominator.remove(info.uid)
            self.queue.move_all(ASSIGNED_POD_ADD, None, info.pod, now)
            return self._on_resized(node, None, info, now, traceparent)
        before, resizes = state.pod, self.resizes
        if resizes is None and info.counts_like(before):
            # What its node reports of a pod: most changes are that, and no plugin has asked for them.
            self.cache.renew_pod(info)
            event = _OTHER_UPDATES[ASSIGNED_POD]
            return [] if self.queue.move_all(event, before.pod, info.pod, now) else UNCHANGED
        if resizes is not None:
            resizes.size(before, info)
            order = resizes.update_order(before, info)
            if order != "one_step":
                return self._in_two_steps(resizes, order, before, info, now, traceparent)
        self._recount(before, info, now)
        return self._on_resized(node, before, info, now, traceparent)

    def _recount(self, before: PodInfo, info: PodInfo, now: float) -> None:
        """Count a pod on a node as it is now, and have the queue follow what changed."""
        self.cache.update_pod(info)
        for event in _pod_changes(ASSIGNED_POD, before, info):
            self.queue.move_all(event, before.pod, info.pod, now)

    def _on_resized(
        self, node: str, before: PodInfo | None, after: PodInfo | None, now: float, traceparent: str = ""
    ) -> list[Effect]:
        """Wake pods that wait for capacity on the node by the change."""
        if self.resizes is None:
            return []
        self.resizes.follow(node, before, after, now, traceparent)
        return [ResizeEnded(after)] if after is not None and self.resizes.has_ended(before, after) else []

    def _in_two_steps(
        self, resizes: DeferredPods, order: str, before: PodInfo, info: PodInfo, now: float, traceparent: str
    ) -> list[Effect]:
        """Notify the one now, and the other when all tasks have had a turn."""
        node = info.spec.node_name
        ended: list[Effect] = [ResizeEnded(info)] if resizes.has_ended(before, info) else []

        def cache() -> list[Effect]:
            self._recount(before, info, now)
            resizes.follow_others(node, before, info, now)
            return []

        def queue() -> list[Effect]:
            resizes.follow_own(node, before, info, now, traceparent)
            return ended

        first, second = (queue, cache) if order == "queue_first" else (cache, queue)
        self._late.append(second)
        return first()

    def _on_unassigned(self, info: PodInfo, state: PodState, now: float, traceparent: str) -> list[Effect]:
        """A pod the cache counts on a node is seen without one."""
        if state.assumption is not None and (not self.unbinding or info.unbind_count <= state.pod.unbind_count):
            # Our bind is still under way; its outcome, not this older view, decides (K2).
            # With unbinding off this is upstream's early return, which loses the pod (3.2).
            queued = self.queue.get(info.key)
            if queued is not None and queued.uid == info.uid:
                queued.info.show(info.pod)
            return []
        if not self.unbinding:
            return [Crash(CORRUPTED.format(pod=info.key, old=state.node_name, new=""))]
        node = state.node_name
        info.attempts = max(info.attempts, state.pod.attempts)
        self._leave_node(state, now)
        return self._unbound(info, node, now, traceparent)

    def _leave_node(self, state: PodState, now: float) -> None:
        """Free what the pod held: it is no longer where the cache had it."""
        if state.assumption is not None:
            self.profiles.runner_of(state.pod).unreserve(state.assumption.state, state.pod, state.node_name)
        self.cache.remove_pod(state.pod.uid)
        self.queue.nominator.remove(state.pod.uid)
        self.queue.move_all(ASSIGNED_POD_DELETE, _as_bound(state.pod.pod, state.node_name), None, now)
        self._on_resized(state.node_name, state.pod, None, now)

    def _unbound(self, info: PodInfo, node: str, now: float, traceparent: str) -> list[Effect]:
        self.exclusions.learn(info.pod, now)
        self.exclusions.learn_kind(info.pod, now)
        if not self._is_ours(info):
            return []
        attempt = max(info.unbind_count, 1)
        delay = min(2.0 ** min(attempt - 1, 62), UNBIND_BACKOFF_MAX_S)
        delay *= self.random.uniform(1 - BACKOFF_JITTER, 1 + BACKOFF_JITTER)
        self.queue.add_after(info, now, now + delay, UNBOUND, traceparent=traceparent)
        history = info.pod.status.unbind_history
        reason = history[0].reason if history else "Unknown"
        node = node or (history[0].node_name if history else "")
        return [Unbound(info, node, reason, attempt, delay)]

    def _waiting(self, info: PodInfo, old: Pod | None, now: float, traceparent: str) -> list[Effect]:
        """A pod without a node that the cache does not count anywhere."""
        if not self._is_ours(info):
            return []
        queued = self.queue.get(info.key)
        if queued is None or queued.uid != info.uid:
            self.exclusions.learn(info.pod, now)
            self.queue.add(info, now, traceparent=traceparent)
            return []
        if self.unbinding and info.unbind_count > queued.info.unbind_count:
            # It was bound and unbound again before we saw either.
            info.attempts = queued.attempts
            return self._unbound(info, "", now, traceparent)
        before = queued.info
        if before.pod.metadata.resource_version == info.pod.metadata.resource_version:
            return []
        events = [(event, before.pod) for event in _pod_changes(UNSCHEDULED_POD, before, info)]
        was_nominated = before.pod.status.nominated_node_name
        self.queue.update(info, now, events, traceparent=traceparent)
        if was_nominated and was_nominated != info.pod.status.nominated_node_name:
            self._free_nomination(before, was_nominated, now)
        return []

    def _on_deleted(self, pod: Pod, now: float) -> list[Effect]:
        uid = pod.metadata.uid
        self.exclusions.forget_pod(uid)
        state = self.cache.pods.get(uid)
        queued = self.queue.get(pod.metadata.key)
        if queued is not None and queued.uid == uid:
            self.queue.delete(pod.metadata.key)
        if state is None:
            self.queue.nominator.remove(uid)
            if pod.status.nominated_node_name:
                self._free_nomination(PodInfo(pod), pod.status.nominated_node_name, now)
            return []
        # What the node said no to may fit now (kubelet-unbinding 7.3, early expiry).
        self.exclusions.clear_node(state.node_name)
        self._leave_node(state, now)
        return []

    def _free_nomination(self, pod: PodInfo, node: str, now: float) -> None:
        """A nomination ended: pods of at most that priority may use the capacity, and the pod may be tried anew."""
        freed = _as_bound(pod.pod, node)
        self.queue.move_all(ASSIGNED_POD_DELETE, freed, None, now, only=lambda each: each.info.priority <= pod.priority)

    def _is_ours(self, info: PodInfo) -> bool:
        return info.spec.scheduler_name in self.profiles

    def on_node(self, old: Node | None, new: Node | None, now: float) -> list[Effect]:
        """Take an added, changed or deleted node."""
        if self._late:
            return [*self.catch_up(), *self.on_node(old, new, now)]
        if new is None:
            assert old is not None
            name = old.metadata.name
            self.queue.move_all(NODE_DELETE, old, None, now)
            self.cache.remove_node(name)
            self.exclusions.clear_node(name)
            orphans = self.queue.nominator.of_lower_priority(name, 2**31)
            for pod in orphans:
                self.queue.nominator.remove(pod.uid)
            return [ClearNomination(pod) for pod in orphans]
        known = self.cache.nodes.get(new.metadata.name)
        before = known.node if known is not None else None
        self.cache.set_node(new)
        if self.resizes is not None:
            self.resizes.follow_node(before, new, now)
        if before is None:
            self.exclusions.clear_node(new.metadata.name)
            self.queue.move_all(NODE_ADD, None, new, now)
            return []
        events = _node_changes(before, new)
        if any(event.action & CURES for event in events):
            self.exclusions.clear_node(new.metadata.name)
        for event in events:
            self.queue.move_all(event, before, new, now)
        return []

    def devices_changed(self, node: str, now: float) -> None:
        """Take a change of a node's devices: it may have devices now that it could not prepare (7.3)."""
        self._wake_excluded(self.exclusions.end(node, UNPREPARED), now)

    def expire_exclusions(self, now: float) -> None:
        """Wake pods whose exclusion ended: there is no API event for that."""
        self._wake_excluded(self.exclusions.expire(now), now)

    def _wake_excluded(self, uids: Iterable[str], now: float) -> None:
        for uid in uids:
            queued = self.queue.by_uid(uid)
            if queued is not None:
                self.queue.move(queued.key, EXCLUSION_EXPIRED, now)


class HeldChanges:
    """Keeps changes while a cycle waits: its decision must hold for the nodes that it looked at (decision 0011)."""

    def __init__(self) -> None:
        self._held: list[tuple[Callable[[Any], None], Any]] | None = None

    def handle(self, handler: Callable[[Any], None], change: Any) -> None:
        """Pass the change to the handler, now or on `release`."""
        if self._held is None:
            handler(change)
        else:
            self._held.append((handler, change))

    def hold(self) -> None:
        """Keep changes from now on."""
        if self._held is None:
            self._held = []

    def release(self) -> None:
        """Pass on the kept changes; afterwards changes are handled at once again."""
        while self._held:
            handler, change = self._held.pop(0)
            handler(change)
        self._held = None


CURES: Final = (
    Action.UPDATE_NODE_ALLOCATABLE
    | Action.UPDATE_NODE_LABEL
    | Action.UPDATE_NODE_SESSION
    | Action.UPDATE_NODE_DECLARED_FEATURE
)


def _as_bound(pod: Pod, node: str) -> Pod:
    return pod if pod.spec.node_name == node else replace(pod, spec=replace(pod.spec, node_name=node))


_OTHER_UPDATES: Final = {
    resource: ClusterEvent(resource, Action.UPDATE_OTHER, f"{resource}Update")
    for resource in (ASSIGNED_POD, UNSCHEDULED_POD)
}


def _pod_changes(resource: str, old: PodInfo, new: PodInfo) -> list[ClusterEvent]:
    has_shrunk = old.requests is not new.requests and any(
        new.requests.amounts.get(name, 0) < need for name, need in old.requests.wanted
    )
    changes = [
        (old.metadata.labels != new.metadata.labels, Action.UPDATE_POD_LABEL, "LabelUpdate"),
        (has_shrunk, Action.UPDATE_POD_SCALE_DOWN, "ScaleDown"),
    ]
    if resource == UNSCHEDULED_POD:
        was, now = old.spec, new.spec
        had_claims, has_claims = (each.pod.status.resource_claim_statuses for each in (old, new))
        is_free = bool(was.scheduling_gates) and not now.scheduling_gates
        changes += [
            (is_free, Action.UPDATE_POD_GATES_ELIMINATED, "GatesEliminated"),
            (was.tolerations != now.tolerations, Action.UPDATE_POD_TOLERATION, "TolerationUpdate"),
            (had_claims != has_claims, Action.UPDATE_POD_GENERATED_CLAIM, "GeneratedResourceClaim"),
        ]
    events = [ClusterEvent(resource, action, resource + name) for has_changed, action, name in changes if has_changed]
    return events or [_OTHER_UPDATES[resource]]


def _node_changes(old: Node, new: Node) -> list[ClusterEvent]:
    is_taint_changed = old.spec.taints != new.spec.taints or (old.spec.unschedulable and not new.spec.unschedulable)
    was, now = old.status, new.status
    has_other_features = was.declared_features != now.declared_features
    is_session_new = was.node_info.kubelet_session != now.node_info.kubelet_session
    changes = (
        (was.allocatable != now.allocatable, Action.UPDATE_NODE_ALLOCATABLE, "NodeAllocatableChange"),
        (old.metadata.labels != new.metadata.labels, Action.UPDATE_NODE_LABEL, "NodeLabelChange"),
        (is_taint_changed, Action.UPDATE_NODE_TAINT, "NodeTaintChange"),
        (_conditions(old) != _conditions(new), Action.UPDATE_NODE_CONDITION, "NodeConditionChange"),
        (old.metadata.annotations != new.metadata.annotations, Action.UPDATE_NODE_ANNOTATION, "NodeAnnotationChange"),
        (has_other_features, Action.UPDATE_NODE_DECLARED_FEATURE, "NodeDeclaredFeatureChange"),
        (is_session_new, Action.UPDATE_NODE_SESSION, "NodeSessionChange"),
    )
    return [ClusterEvent(NODE, action, label) for has_changed, action, label in changes if has_changed]


def _conditions(node: Node) -> dict[str, str]:
    return {c.type: c.status for c in node.status.conditions}
