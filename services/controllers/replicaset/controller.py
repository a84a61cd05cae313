"""Keep as many pods alive as a ReplicaSet asks for.

Failed pods are not active and are replaced at once: against a node that always rejects, this is the
runaway that unbinding is about. With `rs.failed_backoff=on` replacing waits, longer each time.
Source: controllers 1.2 to 1.4 and 2; upstream `pkg/controller/replicaset/replica_set.go`,
`pkg/controller/controller_utils.go`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from services.api.kinds.pod import Pod
from services.api.kinds.replicaset import ReplicaSet
from services.api.meta import Document, Key, find_condition
from services.api.switches import Switches
from services.api.times import format_time
from services.controllers import shared_conditions as conditions
from services.controllers.shared_deletion_order import in_deletion_order
from services.controllers.shared_owned_pods import OwnedPods
from services.controllers.shared_ownership import (
    Unfinished,
    changes_of,
    claim,
    controller_reference,
    is_adoptable,
    selector_of,
)
from services.controllers.shared_readiness import available_in_s, is_ready
from services.reconcile.actions import (
    NOTHING,
    Action,
    Batch,
    Create,
    Delete,
    Patch,
    Query,
    RecordEvent,
    Result,
    earliest,
    event,
)
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch
from services.reconcile.expectations import Expectations

RESOURCE = "replicasets.apps"
BURST = 500
"""Pods created or deleted in one sync at most (upstream BurstReplicas)."""
BACKOFF_BASE_S = 10.0
BACKOFF_MAX_S = 600.0
REJECTED_AGAIN_S = 10.0
"""After asking for pods, look again: a creation refused for good brings no change that would."""


@dataclass
class _Backoff:
    """Failures in a row of one ReplicaSet's pods. `has_news`: some failed since the last delay was set."""

    failures: int = 0
    until_s: float = 0.0
    has_news: bool = False


class ReplicaSets:
    """One controller's memory and its reconcile."""

    def __init__(self, switches: Switches) -> None:
        self.expectations = Expectations()
        self._waits_after_failures = switches.choice("rs.failed_backoff") == "on"
        self._pods = OwnedPods(ReplicaSet, self.expectations)
        self._unfinished = Unfinished()
        self._backoffs: dict[Key, _Backoff] = {}
        self._refusals: dict[Key, tuple[str, str]] = {}
        """What the last attempt met: reason and message, until it has been shown in the status."""

    # --- which keys changes lead to ---

    def pod_changed(self, change: Change[Pod], listers: Listers) -> list[Key]:
        """Lower expectations and return the ReplicaSets concerned."""
        old, new = change.old, change.new
        self._unfinished.note(old, new)
        if self._waits_after_failures and old is not None and new is not None:
            self._note_backoff(self._pods.owner(new, listers), old, new)
        return self._pods.changed(change, listers)

    def _note_backoff(self, key: Key | None, old: Pod, new: Pod) -> None:
        if key is None or old.metadata.uid != new.metadata.uid:
            return
        if new.status.phase == "Failed" and old.status.phase != "Failed":
            self._backoffs.setdefault(key, _Backoff()).has_news = True
        elif is_ready(new) and not is_ready(old):
            self._backoffs.pop(key, None)

    def failed(self, key: Key, action: Action, reason: str) -> None:
        """Take back what was expected of a call that failed; the first failure is shown in the status."""
        is_first = key not in self._refusals and not reason.startswith("not performed")
        match action:
            case Create():
                self.expectations.creation_observed(key)
                if is_first:
                    self._refusals[key] = ("FailedCreate", f"Error creating: {reason}")
            case Delete() if action.resource == "pods":
                self.expectations.deletion_observed(key, action.uid)
                if is_first:
                    self._refusals[key] = ("FailedDelete", f"Error deleting: {reason}")

    # --- the decision ---

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Claim pods, report the status, then create what is missing or delete what is too much."""
        replica_set = listers.of(ReplicaSet).get(key)
        if replica_set is None:
            self._forget(key)
            return NOTHING
        selector = selector_of(replica_set)
        if selector is None:
            return NOTHING
        is_ending = replica_set.metadata.deletion_timestamp is not None
        pods = listers.of(Pod)
        orphans = [p for k in self._pods.orphans.keys(key.namespace) if (p := pods.get(k)) is not None and p.is_active]
        orphans = [] if is_ending else [p for p in orphans if is_adoptable(p, selector)]
        can_adopt = False
        if orphans:
            query = Query(ReplicaSet, key)
            if query not in moment.live:
                return Result(refresh=(query,))
            live = moment.live[query]
            can_adopt = (
                isinstance(live, ReplicaSet)
                and live.metadata.uid == replica_set.metadata.uid
                and live.metadata.deletion_timestamp is None
            )
        owned = [p for k in self._unfinished.keys(replica_set.metadata.uid) if (p := pods.get(k)) is not None]
        found = claim(owned, orphans, replica_set, selector, can_adopt=can_adopt)
        active = [pod for pod in found.kept if pod.is_active]
        actions: list[Action | Batch] = [*self._failure_events(replica_set), *changes_of("pods", found, replica_set)]
        refusal = self._refusals.pop(key, None)
        status, again_s = _status(replica_set, active, found.kept, listers, refusal, moment.wall_s)
        actions += status
        if not is_ending and self.expectations.are_satisfied(key, moment.now_s):
            managed, later_s = self._manage(replica_set, active, listers, moment)
            actions += managed
            again_s = earliest(again_s, later_s)
        return Result(tuple(actions), again_s)

    def _forget(self, key: Key) -> None:
        self.expectations.forget(key)
        self._pods.take_created(key)
        self._backoffs.pop(key, None)
        self._refusals.pop(key, None)

    def _failure_events(self, replica_set: ReplicaSet) -> list[RecordEvent]:
        names = self._pods.take_created(replica_set.metadata.key)
        refusal = self._refusals.get(replica_set.metadata.key)
        events = [event(replica_set, "SuccessfulCreate", f"Created pod: {name}") for name in names]
        if refusal is not None:
            events.append(event(replica_set, refusal[0], refusal[1], warns=True))
        return events

    def _manage(
        self, replica_set: ReplicaSet, active: list[Pod], listers: Listers, moment: Moment
    ) -> tuple[list[Action | Batch], float | None]:
        key, missing = replica_set.metadata.key, replica_set.spec.replicas - len(active)
        if missing > 0:
            if wait_s := self._wait_s(key, moment.now_s):
                return [], wait_s
            count = min(missing, BURST)
            document = _pod_of(replica_set, listers)
            if document is None:
                return [], None
            self.expectations.expect(key, creations=count, now_s=moment.now_s)
            creates = tuple(Create("pods", document) for _ in range(count))
            return [Batch(creates)], REJECTED_AGAIN_S
        if missing < 0:
            ranks = _siblings_by_node(replica_set, listers)
            victims = in_deletion_order(active, ranks, moment.wall_s)[: min(-missing, BURST)]
            uids = [pod.metadata.uid for pod in victims]
            self.expectations.expect(key, deletions=uids, now_s=moment.now_s)
            units: list[Action] = []
            for pod in victims:
                units.append(Delete("pods", pod.metadata.key, uid=pod.metadata.uid))
                units.append(event(replica_set, "SuccessfulDelete", f"Deleted pod: {pod.metadata.name}"))
            return [Batch(tuple(units))], None
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


def _siblings_by_node(replica_set: ReplicaSet, listers: Listers) -> dict[str, int]:
    """Count active pods a node of all ReplicaSets with the same controller."""
    sets = [replica_set]
    if owner := replica_set.metadata.controller:
        sets = listers.of(ReplicaSet).owned_by(owner.uid) or sets
    counts: dict[str, int] = {}
    for each in sets:
        for pod in listers.of(Pod).owned_by(each.metadata.uid):
            if pod.is_active and pod.spec.node_name:
                counts[pod.spec.node_name] = counts.get(pod.spec.node_name, 0) + 1
    return counts


def _pod_of(replica_set: ReplicaSet, listers: Listers) -> Document | None:
    """Return the pod to create, from the template in the stored document, unknown fields and all."""
    document = listers.of(ReplicaSet).document(replica_set.metadata.key)
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


def _status(
    replica_set: ReplicaSet,
    active: list[Pod],
    claimed: Iterable[Pod],
    listers: Listers,
    refusal: tuple[str, str] | None,
    wall_s: float,
) -> tuple[list[Patch], float | None]:
    """Return the status write if anything differs, and when the next ready pod becomes available."""
    min_ready_s = replica_set.spec.min_ready_seconds
    waits = [w for pod in active if (w := available_in_s(pod, min_ready_s, wall_s)) is not None]
    labels = _template_labels(replica_set, listers) if active else {}
    wanted = {
        "replicas": len(active),
        "fullyLabeledReplicas": sum(labels.items() <= pod.metadata.labels.items() for pod in active),
        "readyReplicas": len(waits),
        "availableReplicas": sum(wait == 0 for wait in waits),
        "terminatingReplicas": sum(p.metadata.deletion_timestamp is not None and not p.is_terminal for p in claimed),
        "observedGeneration": replica_set.metadata.generation,
    }
    again_s = min((wait for wait in waits if wait > 0), default=None)
    old = replica_set.status
    failure = find_condition(old.conditions, "ReplicaFailure")
    is_same_failure = failure is None if refusal is None else failure is not None and failure.reason == refusal[0]
    present = {
        "replicas": old.replicas,
        "fullyLabeledReplicas": old.fully_labeled_replicas,
        "readyReplicas": old.ready_replicas,
        "availableReplicas": old.available_replicas,
        "terminatingReplicas": old.terminating_replicas,
        "observedGeneration": old.observed_generation,
    }
    if wanted == present and is_same_failure:
        return [], again_s
    status: Document = dict(wanted)
    if not is_same_failure:
        listed = conditions.as_documents(old.conditions)
        conditions.remove(listed, "ReplicaFailure")
        if refusal is not None:
            now = format_time(wall_s)
            listed.append(
                {
                    "type": "ReplicaFailure",
                    "status": "True",
                    "reason": refusal[0],
                    "message": refusal[1],
                    "lastTransitionTime": now,
                }
            )
        status["conditions"] = listed
    key, uid = replica_set.metadata.key, replica_set.metadata.uid
    return [Patch(RESOURCE, key, {"status": status}, subresource="status", uid=uid)], again_s


def _template_labels(replica_set: ReplicaSet, listers: Listers) -> dict[str, str]:
    document = listers.of(ReplicaSet).document(replica_set.metadata.key) or {}
    labels: dict[str, str] = (document.get("spec", {}).get("template", {}).get("metadata") or {}).get("labels") or {}
    return labels


def controller(switches: Switches) -> Controller:
    """Return the ReplicaSet controller with an empty memory."""
    memory = ReplicaSets(switches)
    return Controller(
        name="replicaset",
        reconciles=ReplicaSet,
        reconcile=memory.reconcile,
        watches=(Watch(Pod, memory.pod_changed),),
        failed=memory.failed,
        workers=5,
    )


CONTROLLER = Registration("replicaset", controller, start_order=1)
