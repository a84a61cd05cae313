"""Roll a ReplicaSet's template forward without losing too many pods.

One step a reconcile: what the numbers allow now; the ReplicaSets' next status brings the next step.
A rollback is nothing special: a client puts an older template back, and its set becomes the new one.
Source: controllers 3; upstream `pkg/controller/deployment`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from services.api.identity import controller_identity
from services.api.kinds.deployment import Deployment, RollingUpdate
from services.api.kinds.pod import Pod
from services.api.kinds.replicaset import ReplicaSet
from services.api.meta import Document, Key
from services.api.selectors import Selector, from_label_selector
from services.api.switches import Switches
from services.api.times import format_time
from services.controllers import conditions, rollout
from services.controllers.ownership import Orphans, changes_of, claim, controller_reference, is_adoptable, owner_key
from services.controllers.readiness import seconds_of
from services.reconcile.actions import NOTHING, Action, Create, Delete, Patch, Query, RecordEvent, Result
from services.reconcile.controller import Change, Controller, Listers, Moment, Watch

RESOURCE = "deployments.apps"
SETS = "replicasets.apps"
HASH_LABEL = "pod-template-hash"
PREFIX = "deployment.kubernetes.io/"
REVISION = PREFIX + "revision"
HISTORY = PREFIX + "revision-history"
DESIRED = PREFIX + "desired-replicas"
MAX = PREFIX + "max-replicas"
_OWN_ANNOTATIONS = frozenset(
    (REVISION, HISTORY, DESIRED, MAX, "kubectl.kubernetes.io/last-applied-configuration",
     "deprecated.deployment.rollback.to")
)  # fmt: skip
_SAFE = "bcdfghjklmnpqrstvwxz2456789"
"""Hash texts use these, so that no bad word can appear."""
NO_DEADLINE_S = 2147483647
_ENCODER = msgspec.json.Encoder(order="deterministic")


def template_hash(template: Document, collision_count: int) -> str:
    """Return the label that names a template's ReplicaSet: FNV-1a over its canonical JSON and the count.

    Deviates: upstream hashes a Go dump of the struct, so the texts differ from a real cluster's.
    """
    data = _ENCODER.encode(template)
    if collision_count:
        data += collision_count.to_bytes(8, "little")
    value = 2166136261
    for byte in data:
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return "".join(_SAFE[int(digit) if digit.isdigit() else 0] for digit in str(value))


def same_template(a: Document, b: Document) -> bool:
    """Whether two templates are equal but for the hash label."""
    return _without_hash(a) == _without_hash(b)


def _without_hash(template: Document) -> Document:
    metadata = dict(template.get("metadata") or {})
    metadata["labels"] = {k: v for k, v in (metadata.get("labels") or {}).items() if k != HASH_LABEL}
    metadata.pop("creationTimestamp", None)
    return {**template, "metadata": metadata}


@dataclass
class _Step:
    """What one reconcile has worked out so far."""

    deployment: Deployment
    document: Document
    sets: list[ReplicaSet]
    """All of them, the oldest first."""
    now: Moment
    surge: int = 0
    unavailable: int = 0
    deadline_s: float | None = None
    new: ReplicaSet | None = None
    actions: list[Action] = field(default_factory=list)
    conditions: list[Document] = field(default_factory=list)
    collision_count: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    """Sizes decided in this reconcile, by name."""
    created_size: int | None = None
    revision: str = ""

    @property
    def replicas(self) -> int:
        return self.deployment.spec.replicas

    @property
    def olds(self) -> list[ReplicaSet]:
        return [s for s in self.sets if self.new is None or s.metadata.uid != self.new.metadata.uid]

    def size(self, each: ReplicaSet) -> int:
        return self.sizes.get(each.metadata.name, each.spec.replicas)

    def event(self, reason: str, message: str, kind: str = "Normal") -> None:
        meta = self.deployment.metadata
        self.actions.append(RecordEvent("Deployment", "apps/v1", meta.key, meta.uid, reason, message, kind))


class Deployments:
    """One controller's memory, which is little, and its reconcile."""

    def __init__(self, switches: Switches) -> None:
        self._deadline_override_s = switches.number("deploy.progress_deadline_s")
        self._orphans = Orphans()

    # --- what changes tell ---

    def set_changed(self, change: Change[ReplicaSet], listers: Listers) -> list[Key]:
        """Return the Deployments a ReplicaSet's change concerns: its owners, or those that would adopt it."""
        self._orphans.note(change.old, change.new)
        found: dict[Key, None] = {}
        for each in (change.old, change.new):
            if each is not None and (key := owner_key(Deployment, each.metadata)) is not None:
                found[key] = None
        new = change.new
        if new is not None and new.metadata.controller is None:
            for deployment in listers.of(Deployment).all(new.metadata.namespace):
                selector = _selector(deployment)
                if selector is not None and is_adoptable(new, selector):
                    found[deployment.metadata.key] = None
        return list(found)

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
        if key is None or deployment is None or deployment.spec.strategy.type != "Recreate":
            return []
        return [key]

    # --- the decision ---

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Claim ReplicaSets, take the next step of scaling or rolling out, and report the status."""
        deployment = listers.of(Deployment).get(key)
        document = listers.of(Deployment).document(key)
        selector = _selector(deployment) if deployment is not None else None
        if deployment is None or document is None or selector is None:
            return NOTHING
        is_ending = deployment.metadata.deletion_timestamp is not None
        lister = listers.of(ReplicaSet)
        orphans = [s for k in self._orphans.keys(key.namespace) if (s := lister.get(k)) and is_adoptable(s, selector)]
        can_adopt = False
        if orphans and not is_ending:
            query = Query(Deployment, key)
            if query not in moment.live:
                return Result(refresh=(query,))
            live = moment.live[query]
            can_adopt = (
                isinstance(live, Deployment)
                and live.metadata.uid == deployment.metadata.uid
                and live.metadata.deletion_timestamp is None
            )
        found = claim(lister.owned_by(deployment.metadata.uid), orphans, deployment, selector, can_adopt=can_adopt)
        sets = sorted(found.kept, key=lambda s: (s.metadata.creation_timestamp, s.metadata.name))
        step = self._begin(deployment, document, sets, moment)
        step.actions += changes_of(SETS, found, deployment)
        again_s = None if is_ending else self._advance(step, listers)
        self._report(step, is_rolling=not is_ending and not deployment.spec.paused and not _is_scaling(step))
        stuck_s = self._look_again_s(step) if not is_ending else None
        return Result(tuple(step.actions), min((s for s in (again_s, stuck_s) if s is not None), default=None))

    def _begin(self, deployment: Deployment, document: Document, sets: list[ReplicaSet], moment: Moment) -> _Step:
        status = document.get("status") or {}
        step = _Step(
            deployment,
            document,
            sets,
            moment,
            conditions=[dict(c) for c in status.get("conditions") or ()],
            collision_count=deployment.status.collision_count,
        )
        strategy = deployment.spec.strategy
        if strategy.type == "RollingUpdate":
            numbers = strategy.rolling_update or RollingUpdate()
            step.surge, step.unavailable = rollout.fenceposts(
                numbers.max_surge, numbers.max_unavailable, deployment.spec.replicas
            )
        deadline_s = float(deployment.spec.progress_deadline_seconds)
        if self._deadline_override_s > 0:
            step.deadline_s = self._deadline_override_s
        elif deadline_s < NO_DEADLINE_S:
            step.deadline_s = deadline_s
        return step

    def _advance(self, step: _Step, listers: Listers) -> float | None:
        """Take one step. Order as upstream: paused, scaling, then the strategy."""
        step.new = _find_new(step, listers)
        if step.deployment.spec.paused:
            self._note_pause(step)
            _sync_revision(step)
            _scale(step)
            _clean_up(step)
            return None
        self._note_pause(step)
        if _is_scaling(step):
            _sync_revision(step)
            _scale(step)
            return None
        if step.deployment.spec.strategy.type == "Recreate":
            return self._recreate(step, listers)
        return self._roll(step, listers)

    def _roll(self, step: _Step, listers: Listers) -> float | None:
        if not self._ensure_new(step, listers):
            return None
        new = step.new
        if new is None:  # just asked for; what to remove is decided when it is there
            return None
        every = [_as_set(each) for each in step.sets]
        size = rollout.new_size(step.replicas, step.surge, _as_set(new), every)
        if _resize(step, new, size):
            return None
        sizes = rollout.old_sizes(step.replicas, step.unavailable, _as_set(new), [_as_set(old) for old in step.olds])
        for old in step.olds:
            if old.metadata.name in sizes:
                _resize(step, old, sizes[old.metadata.name])
        if not sizes:
            _clean_up(step)
        return None

    def _recreate(self, step: _Step, listers: Listers) -> float | None:
        """Old sets to 0; when none of their pods is non-terminal any more, the new set to full size."""
        shrunk = [_resize(step, old, 0) for old in step.olds if old.spec.replicas > 0]
        if any(shrunk):
            return None
        for old in step.olds:
            if any(not pod.is_terminal for pod in listers.of(Pod).owned_by(old.metadata.uid)):
                return None
        if self._ensure_new(step, listers) and step.new is not None and not _resize(step, step.new, step.replicas):
            _clean_up(step)
        return None

    def _ensure_new(self, step: _Step, listers: Listers) -> bool:
        """Have a ReplicaSet with the current template; False when its name is taken by another."""
        if step.new is not None:
            _sync_revision(step)
            self._note_progress(step, "FoundNewReplicaSet", f'Found new replica set "{step.new.metadata.name}"')
            return True
        deployment, template = step.deployment, step.document["spec"].get("template") or {}
        text = template_hash(_without_hash(template), step.collision_count)
        name = f"{deployment.metadata.name}-{text}"
        if listers.of(ReplicaSet).get(Key(deployment.metadata.namespace, name)) is not None:
            # Same name, other template or other owner: count the clash; the next hash differs.
            step.collision_count += 1
            return False
        every = [_as_set(each) for each in step.sets]
        size = step.replicas
        if deployment.spec.strategy.type == "RollingUpdate":
            size = rollout.new_size(step.replicas, step.surge, rollout.Set(name, 0), every)
        step.revision = str(max((_revision(each) for each in step.sets), default=0) + 1)
        step.actions.append(Create(SETS, _new_set(step, name, text, size)))
        step.created_size = size
        if size > 0:
            step.event("ScalingReplicaSet", f"Scaled up replica set {name} from 0 to {size}")
        _sync_deployment_revision(step, step.revision)
        if step.deadline_s is not None:
            conditions.remove(step.conditions, "Progressing")
            self._put(step, "Progressing", "True", "NewReplicaSetCreated", f'Created new replica set "{name}"')
        return True

    # --- status ---

    def _put(self, step: _Step, kind: str, status: str, reason: str, message: str) -> None:
        conditions.put(step.conditions, kind, status, reason, message, step.now.wall_s, has_update_time=True)

    def _note_progress(self, step: _Step, reason: str, message: str) -> None:
        if step.deadline_s is not None and conditions.find(step.conditions, "Progressing") is None:
            self._put(step, "Progressing", "True", reason, message)

    def _note_pause(self, step: _Step) -> None:
        """Say that the deadline is suspended while paused, and that it counts again afterwards."""
        if step.deadline_s is None:
            return
        current = conditions.find(step.conditions, "Progressing") or {}
        if current.get("reason") == "ProgressDeadlineExceeded":
            return
        is_noted = current.get("reason") == "DeploymentPaused"
        if step.deployment.spec.paused and not is_noted:
            self._put(step, "Progressing", "Unknown", "DeploymentPaused", "Deployment is paused")
        elif not step.deployment.spec.paused and is_noted:
            self._put(step, "Progressing", "Unknown", "DeploymentResumed", "Deployment is resumed")

    def _report(self, step: _Step, *, is_rolling: bool) -> None:
        """Append the status write if anything differs from what is stored."""
        counters = _counters(step)
        floor = step.replicas - step.unavailable
        if counters["availableReplicas"] >= floor:
            self._put(step, "Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        else:
            self._put(step, "Available", "False", "MinimumReplicasUnavailable",
                      "Deployment does not have minimum availability.")  # fmt: skip
        if is_rolling:
            self._judge_progress(step, counters)
        _copy_failure(step)
        status: Document = {**counters, "conditions": step.conditions}
        if step.collision_count:
            status["collisionCount"] = step.collision_count
        stored = step.document.get("status") or {}
        if all(stored.get(name, None if name == "conditions" else 0) == value for name, value in status.items()):
            return
        meta = step.deployment.metadata
        step.actions.append(Patch(RESOURCE, meta.key, {"status": status}, subresource="status", uid=meta.uid))

    def _judge_progress(self, step: _Step, counters: Document) -> None:
        if step.deadline_s is None:
            conditions.remove(step.conditions, "Progressing")
            return
        current = conditions.find(step.conditions, "Progressing")
        name = f'ReplicaSet "{step.new.metadata.name}"' if step.new is not None else (
            f'Deployment "{step.deployment.metadata.name}"'
        )  # fmt: skip
        is_over = (
            counters["replicas"] == counters["updatedReplicas"]
            and current is not None
            and current.get("reason") == "NewReplicaSetAvailable"
        )
        if is_over:
            return
        if _is_complete(step, counters):
            self._put(step, "Progressing", "True", "NewReplicaSetAvailable", f"{name} has successfully progressed.")
        elif _has_progressed(step.deployment, counters):
            # A new condition each time: its lastUpdateTime is what the deadline is counted from.
            since = current.get("lastTransitionTime") if current and current.get("status") == "True" else None
            conditions.remove(step.conditions, "Progressing")
            self._put(step, "Progressing", "True", "ReplicaSetUpdated", f"{name} is progressing.")
            if since:
                step.conditions[-1]["lastTransitionTime"] = since
        elif _is_timed_out(step, current):
            self._put(step, "Progressing", "False", "ProgressDeadlineExceeded", f"{name} has timed out progressing.")

    @staticmethod
    def _look_again_s(step: _Step) -> float | None:
        """Return when the deadline will have passed, for a rollout that may be stuck."""
        current = conditions.find(step.conditions, "Progressing")
        if step.deadline_s is None or current is None or step.deployment.spec.paused:
            return None
        if current.get("reason") in ("NewReplicaSetAvailable", "ProgressDeadlineExceeded"):
            return None
        return max(0.0, seconds_of(current.get("lastUpdateTime")) + step.deadline_s - step.now.wall_s) + 1.0


def _selector(deployment: Deployment) -> Selector | None:
    wanted = deployment.spec.selector
    if wanted is None or not (wanted.match_labels or wanted.match_expressions):
        return None
    try:
        return from_label_selector(wanted)
    except ValueError:
        return None


def _as_set(each: ReplicaSet) -> rollout.Set:
    noted = each.metadata.annotations.get(MAX, "")
    return rollout.Set(
        each.metadata.name,
        each.spec.replicas,
        each.status.available_replicas,
        int(noted) if noted.isdigit() else None,
        each.metadata.creation_timestamp,
    )


def _find_new(step: _Step, listers: Listers) -> ReplicaSet | None:
    """Return the oldest set whose template is the Deployment's, so that every look finds the same one."""
    template = step.document["spec"].get("template") or {}
    for each in step.sets:
        stored = listers.of(ReplicaSet).document(each.metadata.key)
        if stored is not None and same_template(stored.get("spec", {}).get("template") or {}, template):
            return each
    return None


def _is_scaling(step: _Step) -> bool:
    """Whether the wish changed since the sets were last scaled."""
    for each in step.sets:
        noted = each.metadata.annotations.get(DESIRED, "")
        if each.spec.replicas > 0 and noted.isdigit() and int(noted) != step.replicas:
            return True
    return False


def _revision(each: ReplicaSet) -> int:
    text = each.metadata.annotations.get(REVISION, "")
    return int(text) if text.isdigit() else 0


def _new_set(step: _Step, name: str, text: str, size: int) -> Document:
    """Return the ReplicaSet of the current template."""
    spec = step.document["spec"]
    template = dict(spec.get("template") or {})
    metadata = dict(template.get("metadata") or {})
    labels = {**(metadata.get("labels") or {}), HASH_LABEL: text}
    template["metadata"] = {**metadata, "labels": labels}
    selector = dict(spec.get("selector") or {})
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH_LABEL: text}
    own = step.deployment.metadata
    annotations = {k: v for k, v in own.annotations.items() if k not in _OWN_ANNOTATIONS}
    annotations |= {REVISION: step.revision, **_size_notes(step)}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": own.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [controller_reference(step.deployment)],
        },
        "spec": {
            "replicas": size,
            "minReadySeconds": step.deployment.spec.min_ready_seconds,
            "selector": selector,
            "template": template,
        },
    }


def _size_notes(step: _Step) -> dict[str, str]:
    return {DESIRED: str(step.replicas), MAX: str(step.replicas + step.surge)}


def _resize(step: _Step, each: ReplicaSet, size: int) -> bool:
    """Scale a set and write down what for; return whether its size changes."""
    notes = {k: v for k, v in _size_notes(step).items() if each.metadata.annotations.get(k) != v}
    if size == each.spec.replicas and not notes:
        return False
    patch: Document = {"spec": {"replicas": size}} if size != each.spec.replicas else {}
    if notes:
        patch["metadata"] = {"annotations": notes}
    # On the version decided from: a set that someone else scaled meanwhile is looked at again (C5).
    step.actions.append(
        Patch(SETS, each.metadata.key, patch, uid=each.metadata.uid, resource_version=each.metadata.resource_version)
    )
    step.sizes[each.metadata.name] = size
    if size == each.spec.replicas:
        return False
    way = "up" if size > each.spec.replicas else "down"
    text = f"Scaled {way} replica set {each.metadata.name} from {each.spec.replicas} to {size}"
    step.event("ScalingReplicaSet", text)
    return True


def _sync_revision(step: _Step) -> None:
    """Let the new set carry the highest revision, and the Deployment the same."""
    new = step.new
    if new is None:
        return
    wanted = max((_revision(old) for old in step.olds), default=0) + 1
    patch: Document = {}
    if _revision(new) < wanted:
        notes = {REVISION: str(wanted)}
        if before := new.metadata.annotations.get(REVISION):
            history = new.metadata.annotations.get(HISTORY)
            notes[HISTORY] = f"{history},{before}" if history else before
        patch["metadata"] = {"annotations": notes}
    if new.spec.min_ready_seconds != step.deployment.spec.min_ready_seconds:
        patch["spec"] = {"minReadySeconds": step.deployment.spec.min_ready_seconds}
    if patch:
        step.actions.append(Patch(SETS, new.metadata.key, patch, uid=new.metadata.uid))
        # A resize in the same reconcile must not ask for the version before this patch.
        step.new = _without_version(new)
    _sync_deployment_revision(step, str(max(wanted, _revision(new))))


def _without_version(each: ReplicaSet) -> ReplicaSet:
    return msgspec.structs.replace(each, metadata=msgspec.structs.replace(each.metadata, resource_version=""))


def _sync_deployment_revision(step: _Step, revision: str) -> None:
    meta = step.deployment.metadata
    if meta.annotations.get(REVISION) != revision:
        step.actions.append(
            Patch(RESOURCE, meta.key, {"metadata": {"annotations": {REVISION: revision}}}, uid=meta.uid)
        )


def _scale(step: _Step) -> None:
    """Follow a changed wish: the one active set, or all of them in proportion."""
    active = [each for each in step.sets if each.spec.replicas > 0]
    if len(active) <= 1:
        only = active[0] if active else step.new or (step.sets[-1] if step.sets else None)
        if only is not None:
            _resize(step, _current(step, only), step.replicas)
        return
    new = step.new
    if new is not None and _is_saturated(step, new):
        for old in step.olds:
            if old.spec.replicas > 0:
                _resize(step, old, 0)
        return
    if step.deployment.spec.strategy.type != "RollingUpdate":
        return
    sizes = rollout.proportional(
        step.replicas, step.surge, step.deployment.status.replicas, [_as_set(each) for each in step.sets]
    )
    for each in step.sets:
        if each.metadata.name in sizes:
            _resize(step, _current(step, each), sizes[each.metadata.name])


def _current(step: _Step, each: ReplicaSet) -> ReplicaSet:
    """Return the set as this reconcile has already changed it."""
    return step.new if step.new is not None and step.new.metadata.uid == each.metadata.uid else each


def _is_saturated(step: _Step, new: ReplicaSet) -> bool:
    return (
        new.spec.replicas == step.replicas
        and new.metadata.annotations.get(DESIRED) == str(step.replicas)
        and new.status.available_replicas == step.replicas
    )


def _clean_up(step: _Step) -> None:
    """Delete the oldest empty sets beyond the history limit, once the rollout is complete."""
    if not step.deployment.spec.paused and not _is_complete(step, _counters(step)):
        return
    olds = sorted(
        (old for old in step.olds if old.metadata.deletion_timestamp is None),
        key=lambda old: (_revision(old), old.metadata.creation_timestamp, old.metadata.name),
    )
    for old in olds[: max(0, len(olds) - step.deployment.spec.revision_history_limit)]:
        is_empty = old.status.replicas == 0 and old.spec.replicas == 0
        if is_empty and old.metadata.generation <= old.status.observed_generation:
            step.actions.append(Delete(SETS, old.metadata.key, uid=old.metadata.uid))


def _counters(step: _Step) -> Document:
    """Return the numbers of the status, over all sets as their last status tells them."""
    available = sum(each.status.available_replicas for each in step.sets)
    asked = sum(step.size(each) for each in step.sets) + (step.created_size or 0)
    return {
        "observedGeneration": step.deployment.metadata.generation,
        "replicas": sum(each.status.replicas for each in step.sets),
        "updatedReplicas": step.new.status.replicas if step.new is not None else 0,
        "readyReplicas": sum(each.status.ready_replicas for each in step.sets),
        "availableReplicas": available,
        "unavailableReplicas": max(0, asked - available),
        "terminatingReplicas": sum(each.status.terminating_replicas or 0 for each in step.sets),
    }


def _is_complete(step: _Step, counters: Document) -> bool:
    return bool(
        counters["updatedReplicas"] == step.replicas
        and counters["replicas"] == step.replicas
        and counters["availableReplicas"] == step.replicas
        and (step.new is not None or step.replicas == 0)
    )


def _has_progressed(deployment: Deployment, counters: Document) -> bool:
    """Whether updated, ready or available pods became more, or old ones fewer."""
    old = deployment.status
    return bool(
        counters["updatedReplicas"] > old.updated_replicas
        or counters["replicas"] - counters["updatedReplicas"] < old.replicas - old.updated_replicas
        or counters["readyReplicas"] > old.ready_replicas
        or counters["availableReplicas"] > old.available_replicas
    )


def _is_timed_out(step: _Step, current: Document | None) -> bool:
    if current is None or step.deadline_s is None or current.get("reason") == "NewReplicaSetAvailable":
        return False
    if current.get("reason") == "ProgressDeadlineExceeded":
        return True
    return step.now.wall_s > seconds_of(current.get("lastUpdateTime")) + step.deadline_s


def _copy_failure(step: _Step) -> None:
    """Show the ReplicaFailure of the new set, or else of any."""
    candidates: Iterable[ReplicaSet] = ([step.new] if step.new is not None else []) + step.olds
    for each in candidates:
        for condition in each.status.conditions:
            if condition.type == "ReplicaFailure" and condition.status == "True":
                now = format_time(step.now.wall_s)
                conditions.put(step.conditions, "ReplicaFailure", "True", condition.reason, condition.message,
                               seconds_of(now), has_update_time=True)  # fmt: skip
                return
    conditions.remove(step.conditions, "ReplicaFailure")


def controller(switches: Switches) -> Controller:
    """Return the Deployment controller."""
    memory = Deployments(switches)
    return Controller(
        name="deployment",
        identity=controller_identity("deployment").user,
        reconciles=Deployment,
        reconcile=memory.reconcile,
        watches=(Watch(ReplicaSet, memory.set_changed), Watch(Pod, memory.pod_changed)),
        workers=5,
    )
