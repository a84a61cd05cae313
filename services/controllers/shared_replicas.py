"""Keep the requested number of pods of a ReplicaSet or ReplicationController alive: one controller for both
kinds.

Failed pods are not active and are replaced at once: against a node that always rejects, this is the runaway
that unbinding avoids. With `rs.failed_backoff=on` each replacement waits longer.
Source: controllers 1.2 to 1.4 and 2; upstream `pkg/controller/replicaset/replica_set.go`,
`pkg/controller/controller_utils.go`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from services.api.kinds.pod import Pod
from services.api.kinds.replicaset import ReplicaSet
from services.api.kinds.replicationcontroller import ReplicationController
from services.api.meta import Document, Key, find_condition
from services.api.resources import resource_of_view
from services.api.selectors import Selector
from services.api.switches import Switches
from services.controllers.shared_owned_pods import REJECTED_AGAIN_S, OwnedPods, Refusal, deletions
from services.controllers.shared_ownership import Claim, changes_of, claim, is_alive, selector_of
from services.controllers.shared_pods import Count, OwnedCounts, available_in_s, in_deletion_order, is_ready
from services.controllers.shared_switches import WorkloadSwitches
from services.reconcile import conditions, writes
from services.reconcile.actions import NOTHING, Action, Batch, Create, Patch, Query, Result, earliest
from services.reconcile.controller import Change, Listers, Moment
from services.reconcile.writes import controller_reference

Replicated = ReplicaSet | ReplicationController

BURST = 500
"""Maximum number of pods created or deleted in one sync (upstream BurstReplicas)."""
BACKOFF_BASE_S = 10.0
BACKOFF_MAX_S = 600.0


@dataclass
class _Backoff:
    """Consecutive failures of one ReplicaSet's pods. `has_news`: a pod failed since the last delay was set."""

    failures: int = 0
    until_s: float = 0.0
    has_news: bool = False


class _Numbers(NamedTuple):
    """What the status says of the pods. `again_s`: seconds until the next ready pod becomes available."""

    active: int
    ready: int
    available: int
    labeled: int
    ending: int
    again_s: float | None = None


class ReplicaSets:
    """The controller's memory and its reconcile function."""

    def __init__(self, switches: Switches, view: type[ReplicaSet] | type[ReplicationController] = ReplicaSet) -> None:
        """`view`: the kind, ReplicaSet or ReplicationController."""
        self._view = view
        self._waits_after_failures = switches.of(WorkloadSwitches).failed_backoff == "on"
        self.pods = OwnedPods(view)
        self._unfinished = OwnedCounts()
        self._backoffs: dict[Key, _Backoff] = {}

    def pod_changed(self, change: Change[Pod], listers: Listers) -> list[Key]:
        """Lower expectations and return the affected ReplicaSets."""
        old, new = change.old, change.new
        self._unfinished.note(old, new)
        if self._waits_after_failures and old is not None and new is not None:
            self._note_backoff(self.pods.owner(new, listers), old, new)
        return self.pods.on_changed(change, listers)

    def _note_backoff(self, key: Key | None, old: Pod, new: Pod) -> None:
        if key is None or old.metadata.uid != new.metadata.uid:
            return
        if new.status.phase == "Failed" and old.status.phase != "Failed":
            self._backoffs.setdefault(key, _Backoff()).has_news = True
        elif is_ready(new) and not is_ready(old):
            self._backoffs.pop(key, None)

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Claim pods, report the status, then create missing pods or delete surplus ones."""
        replica_set = listers.of(self._view).get(key)
        if replica_set is None:
            self.pods.forget(key)
            self._backoffs.pop(key, None)
            return NOTHING
        selector = selector_of(replica_set)
        if selector is None:
            return NOTHING
        is_ending = replica_set.metadata.deletion_timestamp is not None
        pods = listers.of(Pod)
        orphans = [] if is_ending else self.pods.orphans.adoptable(pods, key.namespace, selector)
        orphans = [pod for pod in orphans if not pod.is_terminal]
        query = Query(self._view, key)
        if orphans and query not in moment.live:
            return Result(refresh=(query,))
        claims = None
        if orphans or not self._are_counted(replica_set, selector):
            can_adopt = is_alive(moment.live.get(query), replica_set)
            claims = claim(self._pods_of(replica_set, listers), orphans, replica_set, selector, can_adopt=can_adopt)
        numbers = self._numbers(replica_set, claims, listers, moment.wall_s)
        events, refusal = self.pods.take_news(replica_set)
        adoptions = changes_of("pods", claims, replica_set) if claims is not None else []
        actions: list[Action | Batch] = [*events, *adoptions, *_status(replica_set, numbers, refusal, moment.wall_s)]
        again_s = numbers.again_s
        if not is_ending and self.pods.expectations.are_satisfied(key, moment.now_s):
            managed, later_s = self._manage(replica_set, claims, numbers.active, listers, moment)
            actions += managed
            again_s = earliest(again_s, later_s)
        return Result(tuple(actions), again_s)

    def _are_counted(self, replica_set: Replicated, selector: Selector) -> bool:
        """Whether the numbers kept say all: no pod is to be released, and ready is available at once."""
        counts = self._unfinished.of(replica_set.metadata.uid)
        return replica_set.spec.min_ready_seconds <= 0 and all(selector.matches(count.labels) for count in counts)

    def _pods_of(self, replica_set: Replicated, listers: Listers) -> list[Pod]:
        pods = listers.of(Pod)
        return [p for k in self._unfinished.keys_of(replica_set.metadata.uid) if (p := pods.get(k)) is not None]

    def _numbers(self, replica_set: Replicated, claims: Claim[Pod] | None, listers: Listers, wall_s: float) -> _Numbers:
        labels = _template_labels(replica_set, listers)
        if claims is None:
            return _sum(self._unfinished.of(replica_set.metadata.uid), labels)
        return _numbers_of(claims.kept, replica_set.spec.min_ready_seconds, labels, wall_s)

    def _manage(
        self, replica_set: Replicated, claims: Claim[Pod] | None, active: int, listers: Listers, moment: Moment
    ) -> tuple[list[Action | Batch], float | None]:
        key, missing = replica_set.metadata.key, replica_set.spec.replicas - active
        if missing > 0:
            if wait_s := self._wait_s(key, moment.now_s):
                return [], wait_s
            count = min(missing, BURST)
            document = _pod_of(replica_set, listers)
            if document is None:
                return [], None
            self.pods.expectations.expect(key, creations=count, now_s=moment.now_s)
            creates = tuple(Create("pods", document) for _ in range(count))
            return [Batch(creates)], REJECTED_AGAIN_S
        if missing < 0:
            ranks = _siblings_by_node(replica_set, listers)
            kept = claims.kept if claims is not None else self._pods_of(replica_set, listers)
            alive = [pod for pod in kept if pod.is_active]
            victims = in_deletion_order(alive, ranks, moment.wall_s)[: min(-missing, BURST)]
            uids = [pod.metadata.uid for pod in victims]
            self.pods.expectations.expect(key, deletions=uids, now_s=moment.now_s)
            return deletions(replica_set, victims), None
        return [], None

    def _wait_s(self, key: Key, now_s: float) -> float:
        """Return how long replacing must still wait after failed pods; 0 with the switch off."""
        backoff = self._backoffs.get(key)
        if backoff is None:
            return 0.0
        if backoff.has_news and now_s >= backoff.until_s:
            # Pods that fail while one delay runs belong to the same round.
            backoff.until_s = now_s + min(BACKOFF_BASE_S * 2.0 ** min(backoff.failures, 16), BACKOFF_MAX_S)
            backoff.failures += 1
        backoff.has_news = False
        return max(0.0, backoff.until_s - now_s)


def _siblings_by_node(replica_set: Replicated, listers: Listers) -> dict[str, int]:
    """Count active pods a node of all ReplicaSets with the same controller."""
    sets: list[Replicated] = [replica_set]
    if owner := replica_set.metadata.controller:
        sets = [*listers.of(type(replica_set)).owned_by(owner.uid)] or sets
    counts: dict[str, int] = {}
    for sibling in sets:
        for pod in listers.of(Pod).owned_by(sibling.metadata.uid):
            if pod.is_active and pod.spec.node_name:
                counts[pod.spec.node_name] = counts.get(pod.spec.node_name, 0) + 1
    return counts


def _pod_of(replica_set: Replicated, listers: Listers) -> Document | None:
    """Return the pod to create, from the template in the stored document, unknown fields and all."""
    document = listers.of(type(replica_set)).document(replica_set.metadata.key)
    if document is None:
        return None
    template = document.get("spec", {}).get("template", {})
    given = template.get("metadata") or {}
    metadata: Document = {
        "generateName": f"{replica_set.metadata.name}-",
        "namespace": replica_set.metadata.namespace,
        **{field: given[field] for field in ("labels", "annotations", "finalizers") if given.get(field)},
        "ownerReferences": [controller_reference(replica_set)],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec", {})}


def _numbers_of(pods: Iterable[Pod], min_ready_s: int, labels: dict[str, str], wall_s: float) -> _Numbers:
    """Return the numbers of these pods, by a look at each."""
    kept = tuple(pods)
    active = [pod for pod in kept if pod.is_active]
    waits = [w for pod in active if (w := available_in_s(pod, min_ready_s, wall_s)) is not None]
    return _Numbers(
        len(active),
        len(waits),
        waits.count(0),
        len([pod for pod in active if labels.items() <= pod.metadata.labels.items()]),
        len([pod for pod in kept if pod.metadata.deletion_timestamp is not None and not pod.is_terminal]),
        min((wait for wait in waits if wait > 0), default=None),
    )


def _sum(counts: list[Count], labels: dict[str, str]) -> _Numbers:
    """Return the sum of numbers that were kept, where each ready pod is available."""
    active = ready = labeled = ending = 0
    for count in counts:
        active += count.active
        ready += count.ready
        ending += count.ending
        if labels.items() <= count.labels.items():
            labeled += count.active
    return _Numbers(active, ready, ready, labeled, ending)


def _template_labels(replica_set: Replicated, listers: Listers) -> dict[str, str]:
    document = listers.of(type(replica_set)).document(replica_set.metadata.key)
    template = (document or {}).get("spec", {}).get("template", {})
    found: dict[str, str] = (template.get("metadata") or {}).get("labels") or {}
    return found


def _status(replica_set: Replicated, numbers: _Numbers, refusal: Refusal | None, wall_s: float) -> list[Patch]:
    """Return the status write if anything differs."""
    status: Document = {
        "replicas": numbers.active,
        "fullyLabeledReplicas": numbers.labeled,
        "readyReplicas": numbers.ready,
        "availableReplicas": numbers.available,
        "observedGeneration": replica_set.metadata.generation,
    }
    if isinstance(replica_set, ReplicaSet):
        status["terminatingReplicas"] = numbers.ending
    old = replica_set.status
    failure = find_condition(old.conditions, "ReplicaFailure")
    is_same_failure = failure is None if refusal is None else failure is not None and failure.reason == refusal[0]
    if is_same_failure and not writes.differing(old, status):
        return []
    if not is_same_failure:
        listed = conditions.as_documents(old.conditions)
        conditions.remove(listed, "ReplicaFailure")
        if refusal is not None:
            listed.append(conditions.new("ReplicaFailure", "True", *refusal, wall_s))
        status["conditions"] = listed
    return [writes.status(resource_of_view(type(replica_set)).name, replica_set, status)]
