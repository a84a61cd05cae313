"""Roll a ReplicaSet's template forward without losing too many pods.

Each reconcile takes one step, as far as the current numbers allow; the ReplicaSets' next status brings the next
step. A rollback is no special case: a client restores an older template, and its set becomes the new one.
Source: controllers 3; upstream `pkg/controller/deployment`.
"""

from services.api.kinds.deployment import Deployment, RollingUpdate
from services.api.kinds.pod import Pod
from services.api.kinds.replicaset import ReplicaSet
from services.api.meta import Document, Key
from services.api.switches import Switches
from services.controllers.deployment import replica_sets
from services.controllers.deployment.replica_sets import clean_up, is_scaling, resize, sync_revision
from services.controllers.deployment.rollout import fenceposts, new_size, old_sizes, oldest_first
from services.controllers.deployment.status import SETS, Step, look_again_s, note_pause, note_progress, put, report
from services.controllers.shared_claim_release import is_rolled_to_zero
from services.controllers.shared_ownership import (
    Orphans,
    changes_of,
    claim,
    is_alive,
    owner_key,
    owners_of,
    selector_of,
)
from services.reconcile import conditions
from services.reconcile.actions import NOTHING, Create, Query, Result
from services.reconcile.claim_release import Releases, releasing
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch
from services.reconcile.interest import Interest

NO_DEADLINE_S = 2147483647


class Deployments:
    """The controller's small memory, and its reconcile function."""

    def __init__(self) -> None:
        self._orphans = Orphans()

    def set_changed(self, change: Change[ReplicaSet], listers: Listers) -> list[Key]:
        """Return the Deployments affected by a ReplicaSet's change: its owner, or those that would adopt it."""
        self._orphans.note(change.old, change.new)
        return owners_of(Deployment, change, listers)

    @staticmethod
    def pod_changed(change: Change[Pod], listers: Listers) -> list[Key]:
        """Return the Deployment that waits for the end of an old pod (Recreate only)."""
        new, old = change.new, change.old
        if old is None or (new is not None and new.is_terminal == old.is_terminal):
            return []
        set_key = owner_key(ReplicaSet, old.metadata)
        owner = listers.of(ReplicaSet).get(set_key) if set_key is not None else None
        key = owner_key(Deployment, owner.metadata) if owner is not None else None
        deployment = listers.of(Deployment).get(key) if key is not None else None
        is_waiting = deployment is not None and deployment.spec.strategy.type == "Recreate"
        return [key] if key is not None and is_waiting else []

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Claim ReplicaSets, take the next step of scaling or rolling out, and report the status."""
        deployment = listers.of(Deployment).get(key)
        document = listers.of(Deployment).document(key)
        selector = selector_of(deployment) if deployment is not None else None
        if deployment is None or document is None or selector is None:
            return NOTHING
        is_ending = deployment.metadata.deletion_timestamp is not None
        lister = listers.of(ReplicaSet)
        orphans = [] if is_ending else self._orphans.adoptable(lister, key.namespace, selector)
        query = Query(Deployment, key)
        if orphans and query not in moment.live:
            return Result(refresh=(query,))
        can_adopt = is_alive(moment.live.get(query), deployment)
        claims = claim(lister.owned_by(deployment.metadata.uid), orphans, deployment, selector, can_adopt=can_adopt)
        step = self._begin(deployment, document, oldest_first(claims.kept), moment)
        step.actions += changes_of(SETS, claims, deployment)
        if not is_ending:
            self._advance(step, listers)
        report(step, is_rolling=not is_ending and not deployment.spec.paused and not is_scaling(step))
        return Result(tuple(step.actions), look_again_s(step) if not is_ending else None)

    def _begin(self, deployment: Deployment, document: Document, sets: list[ReplicaSet], moment: Moment) -> Step:
        stored = (document.get("status") or {}).get("conditions") or ()
        count = deployment.status.collision_count
        step = Step(deployment, document, sets, moment, conditions=[dict(c) for c in stored], collision_count=count)
        strategy = deployment.spec.strategy
        if strategy.type == "RollingUpdate":
            numbers = strategy.rolling_update or RollingUpdate()
            step.surge, step.unavailable = fenceposts(numbers.max_surge, numbers.max_unavailable, step.replicas)
        if (deadline_s := deployment.spec.progress_deadline_seconds) < NO_DEADLINE_S:
            step.deadline_s = float(deadline_s)
        return step

    def _advance(self, step: Step, listers: Listers) -> None:
        """Take one step. Order as upstream: paused, scaling, then the strategy."""
        step.new = replica_sets.find_new(step, listers)
        note_pause(step)
        is_paused = step.deployment.spec.paused
        if is_paused or is_scaling(step):
            sync_revision(step)
            replica_sets.scale(step)
            if is_paused:
                clean_up(step)
        elif step.deployment.spec.strategy.type == "Recreate":
            self._recreate(step, listers)
        else:
            self._roll(step, listers)

    def _roll(self, step: Step, listers: Listers) -> None:
        if not self._ensure_new(step, listers) or (new := step.new) is None:
            return  # just asked for: what to remove is decided when it is there
        if resize(step, new, new_size(step.replicas, step.surge, new.spec.replicas, step.sets)):
            return
        sizes = old_sizes(step.replicas, step.unavailable, new, step.olds)
        for old in step.olds:
            if old.metadata.name in sizes:
                resize(step, old, sizes[old.metadata.name])
        if not sizes:
            clean_up(step)

    def _recreate(self, step: Step, listers: Listers) -> None:
        """Old sets to 0; when none of their pods is non-terminal any more, the new set to full size."""
        shrunk = [resize(step, old, 0) for old in step.olds if old.spec.replicas > 0]
        pods = (pod for old in step.olds for pod in listers.of(Pod).owned_by(old.metadata.uid))
        if any(shrunk) or not all(pod.is_terminal for pod in pods):
            return
        if self._ensure_new(step, listers) and step.new is not None and not resize(step, step.new, step.replicas):
            clean_up(step)

    def _ensure_new(self, step: Step, listers: Listers) -> bool:
        """Have a ReplicaSet with the current template; False when its name is taken by another."""
        if step.new is not None:
            sync_revision(step)
            note_progress(step, "FoundNewReplicaSet", f'Found new replica set "{step.new.metadata.name}"')
            return True
        deployment, template = step.deployment, step.document["spec"].get("template") or {}
        text = replica_sets.template_hash(replica_sets.without_hash(template), step.collision_count)
        name = f"{deployment.metadata.name}-{text}"
        if listers.of(ReplicaSet).get(Key(deployment.metadata.namespace, name)) is not None:
            # Same name, other template or other owner: count the clash; the next hash differs.
            step.collision_count += 1
            return False
        size = step.replicas
        if deployment.spec.strategy.type == "RollingUpdate":
            size = new_size(size, step.surge, 0, step.sets)
        step.revision = str(max(map(replica_sets.revision_of, step.sets), default=0) + 1)
        step.actions.append(Create(SETS, replica_sets.new_set(step, name, text, size)))
        step.created_size = size
        if size > 0:
            step.note_scaling(name, 0, size)
        replica_sets.sync_deployment_revision(step, step.revision)
        if step.deadline_s is not None:
            conditions.remove(step.conditions, "Progressing")
            put(step, "Progressing", "True", "NewReplicaSetCreated", f'Created new replica set "{name}"')
        return True


def _build(switches: Switches) -> Controller:
    memory = Deployments()
    watches = (
        Watch(ReplicaSet, memory.set_changed),
        Watch(Pod, memory.pod_changed, Interest(owner=ReplicaSet, changes=("status.phase",))),
    )
    controller = Controller("deployment", Deployment, memory.reconcile, watches=watches, workers=5)
    return releasing(controller, switches, Releases(Deployment, is_rolled_to_zero(switches), dependents=ReplicaSet))


CONTROLLER = Registration("deployment", _build, start_order=2)
