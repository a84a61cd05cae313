"""Keep pods that have names of their own: created in order, replaced under the same name, with the same claims.

There is never a second pod of a name: a new one is created only when the old object is gone, so a pod on an
unreachable node blocks its name until it is deleted by force. Ended pods are deleted and recreated without
back-off: the runaway of a ReplicaSet, one pod after the other. An unbound pod keeps its name and its claims.
Source: controllers 1.4 and 4; kubelet-unbinding 8; upstream `pkg/controller/statefulset`.
"""

from services.api.kinds.controllerrevision import ControllerRevision
from services.api.kinds.persistentvolumeclaim import PersistentVolumeClaim
from services.api.kinds.pod import Pod
from services.api.kinds.statefulset import PARALLEL, ROLLING, StatefulSet
from services.api.meta import Document, Key
from services.api.release import is_before
from services.api.selectors import Selector
from services.api.switches import EMULATED, Switches
from services.controllers import shared_revisions as revisions
from services.controllers.shared_claim_release import is_scaled_to_zero
from services.controllers.shared_int_or_percent import resolve
from services.controllers.shared_ownership import Claim, Orphans, changes_of, claim, is_alive, owner_key, selector_of
from services.controllers.shared_pods import available_in_s
from services.controllers.shared_switches import WorkloadSwitches
from services.controllers.statefulset.order import Desired, is_running_and_ready, revision_of, steps_of
from services.controllers.statefulset.pods import (
    CLAIMS,
    SetState,
    changes_of_steps,
    is_blocked,
    members,
    ordinal_of,
    parent_of,
)
from services.reconcile import writes
from services.reconcile.actions import NOTHING, Action, Batch, Create, Delete, Query, Result, event
from services.reconcile.claim_release import Releases, releasing
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch, refusal_message
from services.reconcile.interest import Interest


class StatefulSets:
    """The controller's small memory, and its reconcile function."""

    def __init__(self, switches: Switches) -> None:
        self._may_replace_many = switches.of(WorkloadSwitches).may_replace_many
        self._counts_broken = is_before(str(switches[EMULATED]), "1.37")
        self._pod_orphans = Orphans()
        self._revision_orphans = Orphans()
        self._refusals: dict[Key, tuple[str, str]] = {}
        """What the last attempt met, as reason and message, until an Event reports it."""

    def pod_changed(self, change: Change[Pod], listers: Listers) -> list[Key]:
        """Return the sets that own the pod, would adopt it, or wait for its name."""
        self._pod_orphans.note(change.old, change.new)
        keys: dict[Key, None] = {}
        for pod in (change.old, change.new):
            if pod is None:
                continue
            if (key := owner_key(StatefulSet, pod.metadata)) is not None:
                keys[key] = None
            elif pod.metadata.controller is None or change.new is None:
                parent = parent_of(pod.metadata.name)
                if parent is not None and listers.of(StatefulSet).get(Key(pod.metadata.namespace, parent[0])):
                    keys[Key(pod.metadata.namespace, parent[0])] = None
        return list(keys)

    def revision_changed(self, change: Change[ControllerRevision], listers: Listers) -> list[Key]:
        """Return the set a revision belongs to."""
        self._revision_orphans.note(change.old, change.new)
        owners = (owner_key(StatefulSet, each.metadata) for each in (change.old, change.new) if each is not None)
        return list(dict.fromkeys(key for key in owners if key is not None))

    @staticmethod
    def claim_changed(change: Change[PersistentVolumeClaim], listers: Listers) -> list[Key]:
        """Return the set whose pod may have waited for the deletion of a claim."""
        if change.new is not None or (parent := parent_of(change.object.metadata.name)) is None:
            return []
        keys: list[Key] = []
        for stateful_set in listers.of(StatefulSet).all(change.object.metadata.namespace):
            name = stateful_set.metadata.name
            if any(f"{t.metadata.name}-{name}" == parent[0] for t in stateful_set.spec.volume_claim_templates):
                keys.append(stateful_set.metadata.key)
        return keys

    def on_failed(self, key: Key, action: Action, reason: str) -> None:
        """Keep the first refusal, for an Event of the next reconcile."""
        if key in self._refusals or reason.startswith(("not performed", "AlreadyExists")):
            return
        match action:
            case Create() if action.resource == "pods":
                verb, what = "create", f"Pod {action.document['metadata']['name']}"
            case Create() if action.resource == CLAIMS:
                name = action.document["metadata"]["name"]
                verb, what = "create", f"Claim {name} for Pod {key.name}-{name.rpartition('-')[2]}"
            case Delete() if action.resource == "pods":
                verb, what = "delete", f"Pod {action.key.name}"
            case _:
                return
        text = f"{verb} {what} in StatefulSet {key.name} failed error: {refusal_message(reason)}"
        self._refusals[key] = (f"Failed{verb.title()}", text)

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Claim pods and revisions, find the current revision, report the status, and take the steps that the order
        allows.
        """
        stateful_set, document = listers.of(StatefulSet).get(key), listers.of(StatefulSet).document(key)
        if stateful_set is None or document is None:
            self._refusals.pop(key, None)
            return NOTHING
        selector = selector_of(stateful_set)
        if selector is None:
            return NOTHING
        orphans, history = self._orphans(stateful_set, selector, listers)
        query = Query(StatefulSet, key)
        if (orphans or history) and query not in moment.live:
            return Result(refresh=(query,))
        can_adopt = is_alive(moment.live.get(query), stateful_set)
        pods = _claim_pods(stateful_set, orphans, selector, listers, can_adopt=can_adopt)
        owned = listers.of(ControllerRevision).owned_by(stateful_set.metadata.uid)
        held = claim(owned, history, stateful_set, selector, can_adopt=can_adopt)
        refusal = self._refusals.pop(key, None)
        actions: list[Action | Batch] = [
            *([event(stateful_set, *refusal, warns=True)] if refusal is not None else []),
            *changes_of("pods", pods, stateful_set),
            *changes_of(revisions.RESOURCE, held, stateful_set),
        ]
        lookup = revisions.find(stateful_set, document, held.kept, listers.of(ControllerRevision))
        is_ending = stateful_set.metadata.deletion_timestamp is not None
        if lookup.write is not None:
            if is_ending:
                return Result(tuple(actions))
            actions.append(lookup.write)
        name = stateful_set.status.current_revision
        current = next((each for each in held.kept if each.metadata.name == name), lookup.revision)
        known = SetState(stateful_set, document, members(stateful_set, pods.kept), current, lookup.revision)
        actions += _status_actions(known, lookup.collision_count, moment.wall_s)
        if is_ending:
            return Result(tuple(actions))
        desired = self._desired_state(known)
        missing = (ordinal for ordinal in desired.ordinals if ordinal not in known.pods)
        blocked = [ordinal for ordinal in missing if is_blocked(stateful_set, ordinal, listers)]
        steps = steps_of(desired, known.pods, blocked, moment.wall_s)
        actions += changes_of_steps(known, desired, steps, listers)
        live = {current.metadata.name, lookup.revision.metadata.name, *map(revision_of, known.pods.values())}
        actions += revisions.surplus(held.kept, live, stateful_set.spec.revision_history_limit)
        return Result(tuple(actions), steps.again_s)

    def _orphans(
        self, stateful_set: StatefulSet, selector: Selector, listers: Listers
    ) -> tuple[list[Pod], list[ControllerRevision]]:
        """Return the pods and revisions that the set may adopt; none when it is being deleted itself."""
        if stateful_set.metadata.deletion_timestamp is not None:
            return [], []
        namespace = stateful_set.metadata.namespace
        pods = self._pod_orphans.adoptable(listers.of(Pod), namespace, selector)
        history = self._revision_orphans.adoptable(listers.of(ControllerRevision), namespace, selector)
        return [p for p in pods if ordinal_of(stateful_set, p.metadata.name) is not None], history

    def _desired_state(self, known: SetState) -> Desired:
        spec, status = known.stateful_set.spec, known.stateful_set.status
        rolling = spec.update_strategy.rolling_update
        is_rolling = spec.update_strategy.type == ROLLING
        partition = rolling.partition if rolling is not None else 0
        most: int | None = None
        if self._may_replace_many and rolling is not None:
            max_unavailable = 1 if rolling.max_unavailable is None else rolling.max_unavailable
            most = max(1, resolve(max_unavailable, spec.replicas, is_up=False))
        return Desired(
            known.stateful_set.ordinals,
            is_parallel=spec.pod_management_policy == PARALLEL,
            counts_broken=self._counts_broken or spec.pod_management_policy != PARALLEL,
            min_ready_s=spec.min_ready_seconds,
            current_revision=known.current.metadata.name,
            update_revision=known.update.metadata.name,
            partition=partition if is_rolling else None,
            kept_revision=status.current_replicas if is_rolling and rolling is None else partition,
            most_unavailable=most,
        )


def _claim_pods(
    stateful_set: StatefulSet, orphans: list[Pod], selector: Selector, listers: Listers, *, can_adopt: bool
) -> Claim[Pod]:
    """Return the pods to keep, adopt and release; one whose name is not the set's is released too."""
    owned = listers.of(Pod).owned_by(stateful_set.metadata.uid)
    claims = claim(owned, orphans, stateful_set, selector, can_adopt=can_adopt)
    if stateful_set.metadata.deletion_timestamp is not None:
        return claims
    misnamed = tuple(p for p in claims.kept if ordinal_of(stateful_set, p.metadata.name) is None)
    kept = tuple(p for p in claims.kept if p not in misnamed)
    return Claim(kept, claims.adopted, (*claims.released, *misnamed))


def _status_actions(known: SetState, collision_count: int, wall_s: float) -> list[Action]:
    """Return the status write if anything differs.

    Terminating pods count as replicas, and as ready while they are, but not as being of a revision.
    """
    stateful_set, current, update = known.stateful_set, known.current.metadata.name, known.update.metadata.name
    pods, min_ready_s = known.pods.values(), stateful_set.spec.min_ready_seconds
    ready = [pod for pod in pods if is_running_and_ready(pod)]
    staying = [revision_of(pod) for pod in pods if pod.metadata.deletion_timestamp is None]
    status: Document = {
        "observedGeneration": stateful_set.metadata.generation,
        "replicas": len(pods),
        "readyReplicas": len(ready),
        "availableReplicas": sum(available_in_s(pod, min_ready_s, wall_s) == 0 for pod in ready),
        "currentReplicas": staying.count(current),
        "updatedReplicas": staying.count(update),
        "currentRevision": current,
        "updateRevision": update,
        "collisionCount": collision_count,
    }
    is_complete = {len(pods), len(ready), staying.count(update)} == {stateful_set.spec.replicas}
    if is_complete and stateful_set.spec.update_strategy.type == ROLLING:
        status |= {"currentReplicas": status["updatedReplicas"], "currentRevision": update}
    is_changed = writes.differing(stateful_set.status, status)
    return [writes.status("statefulsets.apps", stateful_set, status)] if is_changed else []


def _build(switches: Switches) -> Controller:
    memory = StatefulSets(switches)
    watches = (
        Watch(Pod, memory.pod_changed, Interest(owner=StatefulSet)),
        Watch(ControllerRevision, memory.revision_changed),
        Watch(PersistentVolumeClaim, memory.claim_changed),
    )
    failed = memory.on_failed
    controller = Controller("statefulset", StatefulSet, memory.reconcile, watches=watches, failed=failed, workers=5)
    return releasing(controller, switches, Releases(StatefulSet, is_scaled_to_zero(switches)))


CONTROLLER = Registration("statefulset", _build, start_order=3)
