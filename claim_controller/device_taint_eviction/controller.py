"""Delete pods whose devices have NoExecute taints: at once, or when the tolerations of their claims run
out.

A key names its kind: `pod/NAME` or `rule/NAME`. The eviction time of a pod follows from taints and allocation,
so nothing is lost with a process. The controller's memory only serves the event of a cancelled deletion, and
the counts. A memory entry is for a pod on one node: an unbind makes it void. Source: dra-core 8; controllers
12; kep-5194 8; upstream `pkg/controller/devicetainteviction`.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

from msgspec.structs import replace as replaced

from claim_controller.device_taint_eviction import rule_status
from claim_controller.device_taint_eviction.deadlines import (
    Eviction,
    Offers,
    Pool,
    earliest_eviction,
    eviction_from,
    selects,
)
from claim_controller.shared_pods_by_claim import PodsByClaim
from claim_controller.switches import ClaimSwitches
from services.api.identity import system_account
from services.api.kinds.devicetaintrule import EVICTION_IN_PROGRESS, TAINT_RULES, DeviceTaintRule
from services.api.kinds.pod import Pod
from services.api.kinds.resourceclaim import ResourceClaim
from services.api.kinds.resourceslice import NO_EXECUTE, ResourceSlice
from services.api.meta import Key, condition_status, find_condition
from services.api.switches import Switches
from services.api.times import parse_time
from services.dra.pod_claims import claim_keys, claim_name
from services.reconcile import conditions, writes
from services.reconcile.actions import NOTHING, Action, Delete, Query, RecordEvent, Result, event
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch
from services.reconcile.interest import Interest
from services.reconcile.kind_keys import kind_key, split
from services.telemetry.metrics import Histogram, Metrics, Samples, counter, histogram

POD, RULE = "pod", "rule"
USER: Final = system_account("device-taint-eviction-controller").user
QUEUE: Final = "device-taint-eviction-controller"
"""The work queue's name in metrics, as upstream's."""
REASON: Final = "DeletionByDeviceTaintManager"
MESSAGE: Final = "Device Taint manager: deleting due to NoExecute taint"
EVENT: Final = "DeviceTaintManagerEviction"
STATUS_PERIOD_S: Final = 10.0
"""Minimum seconds between two status writes of a rule, once the status reflects the rule's newest generation."""
WORKERS: Final = 10
BUCKETS_S: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0)


@dataclass(frozen=True)
class Marked:
    """A pod to evict: its uid, its node, its eviction time, and whether its deletion was requested."""

    uid: str
    node: str
    eviction: Eviction
    is_fired: bool = False


class EvictionCounts:
    """The number of deletions, and their latency after the eviction time."""

    def __init__(self) -> None:
        self.deletions_total = 0
        self.latency = Histogram(BUCKETS_S)

    def samples(self) -> Samples:
        """Return the metric samples."""
        return METRICS.of(self)


class DeviceTaintEviction:
    """The controller's state (pods by claim, published devices, pods to evict), and the reconcile of one pod or
    rule.
    """

    def __init__(self, switches: Switches) -> None:
        self._switches = switches.of(ClaimSwitches)
        self._pods = PodsByClaim()
        self._offers = Offers()
        self._claims: dict[Pool, dict[Key, None]] = {}
        """Allocated claims by the pools of their devices."""
        self._marked: dict[Key, Marked] = {}
        self._evicted: dict[str, int] = {}
        """Pods deleted because of a rule, by its uid, since this process began."""
        self.counts = EvictionCounts()

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Reconcile one pod or one rule."""
        kind, own = split(key)
        return self._pod(own, listers, moment) if kind == POD else self._rule(own, listers, moment)

    def _pod(self, key: Key, listers: Listers, moment: Moment) -> Result:
        pod, marked = listers.of(Pod).get(key), self._marked.get(key)
        if pod is None or pod.metadata.deletion_timestamp is not None or pod.is_terminal:
            self._marked.pop(key, None)
            if marked is not None and marked.is_fired:
                self._count(marked, moment)
            return NOTHING
        eviction = self._eviction_of(pod, listers, self._rules(listers))
        if eviction is None or (marked is not None and not _is_for(marked, pod)):
            if self._marked.pop(key, None) is not None:
                return Result(
                    (_eviction_event(pod, "Cancelling deletion"),), requeue_after_s=None if eviction is None else 0.0
                )
            return NOTHING
        is_fired = marked is not None and marked.is_fired
        self._marked[key] = Marked(pod.metadata.uid, pod.spec.node_name, eviction, is_fired)
        wait_s = eviction.at_s - moment.wall_s
        return Result(requeue_after_s=wait_s) if wait_s > 0 else self._evict(pod, moment)

    def _evict(self, pod: Pod, moment: Moment) -> Result:
        """Delete the pod after a live look at it, with the condition that Jobs read; as often as that fails."""
        key = pod.metadata.key
        query = Query(Pod, key)
        if query not in moment.live:
            return Result(refresh=(query,))
        live, marked = moment.live[query], self._marked[key]
        if not isinstance(live, Pod) or live.metadata.deletion_timestamp is not None or not _is_for(marked, live):
            return NOTHING  # gone, going, or on another node (unbound): the cache will show it
        actions: list[Action] = []
        if not marked.is_fired:
            actions.append(_eviction_event(pod, "Marking for deletion"))
            self._marked[key] = replace(marked, is_fired=True)
        if condition_status(live.status.conditions, "DisruptionTarget") != "True":
            condition = conditions.new("DisruptionTarget", "True", REASON, MESSAGE, moment.wall_s)
            # Against this very binding: a pod that is unbound after the look is another matter.
            actions.append(writes.conditions("pods", live, condition, on_version=True))
        actions.append(Delete("pods", key, uid=live.metadata.uid))
        return Result(tuple(actions))

    def _count(self, marked: Marked, moment: Moment) -> None:
        self.counts.deletions_total += 1
        self.counts.latency.observe(max(0.0, moment.wall_s - marked.eviction.at_s))
        for rule in marked.eviction.rules:
            self._evicted[rule] = self._evicted.get(rule, 0) + 1

    def _rule(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Keep the rule's condition true, at most once a period for one form of the rule."""
        rule = listers.of(DeviceTaintRule).get(Key("", key.name))
        if rule is None:
            return NOTHING
        held = find_condition(rule.status.conditions, EVICTION_IN_PROGRESS)
        is_current = held is not None and held.observed_generation == rule.metadata.generation
        if held is not None and is_current and held.last_transition_time:
            wait_s = parse_time(held.last_transition_time) + STATUS_PERIOD_S - moment.wall_s
            if wait_s > 0:
                return Result(requeue_after_s=wait_s)
        if is_current and rule.spec.taint.effect == rule_status.NONE:
            return NOTHING
        wanted = rule_status.condition_of(rule, self._counts_of(rule, listers), moment.wall_s)
        wanted_state = (wanted["status"], wanted["reason"], wanted["message"])
        if held is not None and is_current and (held.status, held.reason, held.message) == wanted_state:
            return NOTHING
        # Looked at once more: a pod may be gone that the caches still showed.
        return Result((writes.conditions(TAINT_RULES, rule, wanted),), requeue_after_s=STATUS_PERIOD_S)

    def _counts_of(self, rule: DeviceTaintRule, listers: Listers) -> rule_status.Counts:
        """Count what the rule does, or for effect None what it would do with NoExecute."""
        rules, uid = self._rules(listers), rule.metadata.uid
        published = allocated = 0
        if rule.spec.taint.effect == rule_status.NONE:
            acting = replaced(rule, spec=replaced(rule.spec, taint=replaced(rule.spec.taint, effect=NO_EXECUTE)))
            rules = [acting if each.metadata.uid == uid else each for each in rules]
            published = self._offers.count(rule)
            claims = [each.status.allocation for each in listers.of(ResourceClaim).all()]
            allocated = sum(selects(rule, result) for each in claims if each for result in each.devices.results)
        spaces = []
        for pod in listers.of(Pod).all():
            if not pod.spec.resource_claims or pod.metadata.deletion_timestamp is not None or pod.is_terminal:
                continue
            eviction = self._eviction_of(pod, listers, rules)
            if eviction is not None and uid in eviction.rules:
                spaces.append(pod.metadata.namespace)
        return rule_status.Counts(len(spaces), len(set(spaces)), published, allocated, self._evicted.get(uid, 0))

    def _rules(self, listers: Listers) -> list[DeviceTaintRule]:
        return listers.of(DeviceTaintRule).all() if self._switches.has_taint_rules else []

    def _eviction_of(self, pod: Pod, listers: Listers, rules: list[DeviceTaintRule]) -> Eviction | None:
        """Return when the pod has to go because of any claim that it uses; None: it may stay, or is on no node."""
        if not pod.spec.node_name:
            return None
        evictions = []
        for wanted in pod.spec.resource_claims:
            name = claim_name(pod, wanted)
            claim = listers.of(ResourceClaim).get(Key(pod.metadata.namespace, name)) if name else None
            if claim is not None and _uses(pod, claim):
                evictions.append(eviction_from(claim, self._offers, rules))
        return earliest_eviction(each for each in evictions if each is not None)

    def pod_changed(self, change: Change[Pod], listers: Listers) -> list[Key]:
        """Return the pod's key and those of its rules, if its node or claims changed, or it is marked for eviction."""
        pod, old, new = change.object, change.old, change.new
        if not pod.spec.resource_claims:
            return []
        self._pods.note(old, new)
        key = pod.metadata.key
        is_marked = key in self._marked
        if not is_marked and (new is None or (old is not None and _place(old) == _place(new))):
            return []
        return self._keys(key, listers)

    def claim_changed(self, change: Change[ResourceClaim], listers: Listers) -> list[Key]:
        """Return the pods that use a claim whose devices changed; if only its consumers changed, those that came or
        went.
        """
        old, new = change.old, change.new
        key = change.object.metadata.key
        before, after = _pools(old), _pools(new)
        for pool in before:
            if pool not in after:
                self._claims.get(pool, {}).pop(key, None)
        for pool in after:
            self._claims.setdefault(pool, {})[key] = None
        states = [
            (each.status.allocation, each.status.reserved_for) if each is not None else None for each in (old, new)
        ]
        if not (before or after) or states[0] == states[1]:
            return []
        uses = [(each.status.allocation, _is_for_all(each)) for each in (old, new) if each is not None]
        if old is not None and new is not None and uses[0] == uses[1]:
            came_or_went = set(old.status.reserved_for) ^ set(new.status.reserved_for)
            pods = sorted(Key(key.namespace, each.name) for each in came_or_went if each.is_pod)
            return list(dict.fromkeys(each for pod in pods for each in self._keys(pod, listers)))
        return self._users(key, [each for each in (old, new) if each is not None], listers)

    def slice_changed(self, change: Change[ResourceSlice], listers: Listers) -> list[Key]:
        """Return the pods that use devices of a pool in which taints changed."""
        pools = self._offers.note(change.old, change.new)
        return self._of_claims([key for pool in pools for key in self._claims.get(pool, ())], listers)

    def rule_changed(self, change: Change[DeviceTaintRule], listers: Listers) -> list[Key]:
        """Return the rule and, if its spec changed, the pods of all claims (rules change seldom)."""
        old, new = change.old, change.new
        if new is None:
            self._evicted.pop(change.object.metadata.uid, None)
        elif old is not None and old.spec == new.spec:
            return []
        keys = [] if new is None else [kind_key(RULE, "", new.metadata.name)]
        return keys + self._of_claims([key for claims in self._claims.values() for key in claims], listers)

    def _of_claims(self, keys: list[Key], listers: Listers) -> list[Key]:
        found: list[Key] = []
        for key in dict.fromkeys(keys):
            claim = listers.of(ResourceClaim).get(key)
            found += self._users(key, [] if claim is None else [claim], listers)
        return list(dict.fromkeys(found))

    def _users(self, key: Key, claims: list[ResourceClaim], listers: Listers) -> list[Key]:
        """Return the pods that are listed, one that is not there aside, and those that name the claim (kep-5194 8)."""
        listed = (
            Key(key.namespace, each.name) for claim in claims for each in claim.status.reserved_for if each.is_pod
        )
        pods = dict.fromkeys([*listed, *self._pods.of(key)])
        return list(dict.fromkeys(each for pod in pods for each in self._keys(pod, listers)))

    def _keys(self, key: Key, listers: Listers) -> list[Key]:
        """Return the pod's key, and those of the rules because of which it has, or had, to go."""
        if not self._switches.has_taint_rules:
            return [kind_key(POD, *key)]
        pod, marked = listers.of(Pod).get(key), self._marked.get(key)
        eviction = self._eviction_of(pod, listers, self._rules(listers)) if pod is not None else None
        before = marked.eviction if marked is not None else None
        uids = {uid for each in (eviction, before) if each is not None for uid in each.rules}
        names = [rule.metadata.name for rule in self._rules(listers) if rule.metadata.uid in uids]
        return [kind_key(POD, *key), *(kind_key(RULE, "", name) for name in names)]


def _uses(pod: Pod, claim: ResourceClaim) -> bool:
    """Whether the pod may use the claim: it is listed, or an entry that is no pod, or the flag, speaks for it."""
    allocation, owner = claim.status.allocation, claim.metadata.controller
    if owner is not None and owner.kind == "Pod" and owner.uid != pod.metadata.uid:
        return False
    if allocation is None or claim.status.is_reserved_for(pod.metadata.uid):
        return allocation is not None
    return _is_for_all(claim)


def _is_for_all(claim: ResourceClaim) -> bool:
    """Whether a pod need not be listed itself: a workload is, or the allocation is marked so."""
    allocation, entries = claim.status.allocation, claim.status.reserved_for
    is_marked = allocation is not None and allocation.reserved_for_any_pod
    return is_marked or any(not each.is_pod for each in entries)


def _place(pod: Pod) -> tuple[str, str, list[Key]]:
    return pod.metadata.uid, pod.spec.node_name, claim_keys(pod)


def _pools(claim: ResourceClaim | None) -> list[Pool]:
    if claim is None or claim.status.allocation is None:
        return []
    return list(dict.fromkeys((each.driver, each.pool) for each in claim.status.allocation.devices.results))


def _is_for(marked: Marked, pod: Pod) -> bool:
    return (marked.uid, marked.node) == (pod.metadata.uid, pod.spec.node_name)


def _eviction_event(pod: Pod, message: str) -> RecordEvent:
    return event(pod, EVENT, message)


METRICS: Final[Metrics[EvictionCounts]] = Metrics(
    counter(
        "device_taint_eviction_controller_pod_deletions_total",
        "Pods deleted because of taints on their devices.",
        lambda counts: counts.deletions_total,
    ),
    histogram(
        "device_taint_eviction_controller_pod_deletion_duration_seconds",
        "From the time a pod had to go to its deletion.",
        lambda counts: counts.latency,
    ),
)


def _build(switches: Switches) -> Controller:
    memory = DeviceTaintEviction(switches)
    watches: list[Watch[Any]] = [
        Watch(Pod, memory.pod_changed, Interest(has="spec.resource_claims")),
        Watch(ResourceClaim, memory.claim_changed),
        Watch(ResourceSlice, memory.slice_changed),
    ]
    if switches.of(ClaimSwitches).has_taint_rules:
        watches.append(Watch(DeviceTaintRule, memory.rule_changed))
    return Controller(
        "device-taint-eviction",
        None,
        memory.reconcile,
        USER,
        watches=tuple(watches),
        workers=WORKERS,
        queue=QUEUE,
        metrics=memory.counts.samples,
    )


CONTROLLER = Registration(
    "device-taint-eviction", _build, is_wanted=lambda switches: switches.of(ClaimSwitches).has_taints
)
