"""ReplicaSets of a Deployment: the one of the current template, the document of a new one, and their changes.

Every change is recorded as an action of the step; `rollout` computes the sizes.
Source: controllers 3; upstream `pkg/controller/deployment` (`sync.go`, `util/deployment_util.go`).
"""

import msgspec
from msgspec.structs import replace

from services.api.kinds.deployment import Deployment
from services.api.kinds.replicaset import ReplicaSet
from services.api.meta import Document
from services.controllers.deployment.rollout import MAX, proportional
from services.controllers.deployment.status import RESOURCE, SETS, Step, counters_of, is_complete
from services.controllers.shared_hash_text import hash_text
from services.reconcile import writes
from services.reconcile.actions import Delete
from services.reconcile.controller import Listers
from services.reconcile.writes import controller_reference

HASH_LABEL = "pod-template-hash"
PREFIX = "deployment.kubernetes.io/"
REVISION = PREFIX + "revision"
HISTORY = PREFIX + "revision-history"
DESIRED = PREFIX + "desired-replicas"
_OTHERS = ("kubectl.kubernetes.io/last-applied-configuration", "deprecated.deployment.rollback.to")
_OWN_ANNOTATIONS = frozenset((REVISION, HISTORY, DESIRED, MAX, *_OTHERS))
_ENCODER = msgspec.json.Encoder(order="deterministic")


def template_hash(template: Document, collision_count: int) -> str:
    """Return the label value that names a template's ReplicaSet: FNV-1a over its canonical JSON and the count.

    Deviates: upstream hashes a Go dump of the struct, so the texts differ from a real cluster's.
    """
    data = _ENCODER.encode(template)
    if collision_count:
        data += collision_count.to_bytes(8, "little")
    value = 2166136261
    for byte in data:
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return hash_text(value)


def without_hash(template: Document) -> Document:
    """Return the template as input of its hash: without the hash label and without a time."""
    metadata = dict(template.get("metadata") or {})
    metadata["labels"] = {k: v for k, v in (metadata.get("labels") or {}).items() if k != HASH_LABEL}
    metadata.pop("creationTimestamp", None)
    return {**template, "metadata": metadata}


def find_new(step: Step, listers: Listers) -> ReplicaSet | None:
    """Return the oldest set with the Deployment's template, so that every reconcile finds the same one."""
    wanted = without_hash(step.document["spec"].get("template") or {})
    for replica_set in step.sets:
        stored = listers.of(ReplicaSet).document(replica_set.metadata.key)
        if stored is not None and without_hash(stored.get("spec", {}).get("template") or {}) == wanted:
            return replica_set
    return None


def is_scaling(step: Step) -> bool:
    """Whether the desired number of replicas changed since the sets were last scaled."""
    noted = [each.metadata.annotations.get(DESIRED, "") for each in step.sets if each.spec.replicas > 0]
    return any(text.isdigit() and int(text) != step.replicas for text in noted)


def revision_of(each: ReplicaSet) -> int:
    """Return the revision of a set; 0 if it has none."""
    text = each.metadata.annotations.get(REVISION, "")
    return int(text) if text.isdigit() else 0


def new_set(step: Step, name: str, text: str, size: int) -> Document:
    """Return the ReplicaSet of the current template."""
    spec = step.document["spec"]
    template = dict(spec.get("template") or {})
    metadata = dict(template.get("metadata") or {})
    labels = {**(metadata.get("labels") or {}), HASH_LABEL: text}
    template["metadata"] = {**metadata, "labels": labels}
    selector = dict(spec.get("selector") or {})
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH_LABEL: text}
    own = step.deployment.metadata
    annotations = _annotations(step.deployment)
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


def _annotations(deployment: Deployment) -> dict[str, str]:
    """Return the annotations that a Deployment's current set has from it (upstream `SetNewReplicaSetAnnotations`)."""
    return {k: v for k, v in deployment.metadata.annotations.items() if k not in _OWN_ANNOTATIONS}


def _size_notes(step: Step) -> dict[str, str]:
    return {DESIRED: str(step.replicas), MAX: str(step.replicas + step.surge)}


def resize(step: Step, replica_set: ReplicaSet, size: int) -> bool:
    """Scale a set and record the desired size in its annotations; return whether its size changes."""
    notes = {k: v for k, v in _size_notes(step).items() if replica_set.metadata.annotations.get(k) != v}
    if size == replica_set.spec.replicas and not notes:
        return False
    patch: Document = {"spec": {"replicas": size}} if size != replica_set.spec.replicas else {}
    if notes:
        patch["metadata"] = {"annotations": notes}
    # On the version decided from: a set that someone else scaled meanwhile is looked at again (C5).
    step.actions.append(writes.patch(SETS, replica_set, patch, on_version=True))
    step.sizes[replica_set.metadata.name] = size
    if size != replica_set.spec.replicas:
        step.note_scaling(replica_set.metadata.name, replica_set.spec.replicas, size)
    return size != replica_set.spec.replicas


def sync_revision(step: Step) -> None:
    """Set the highest revision on the new set, and the same one on the Deployment."""
    new = step.new
    if new is None:
        return
    wanted = max((revision_of(old) for old in step.olds), default=0) + 1
    patch: Document = {}
    if revision_of(new) < wanted:
        notes = {REVISION: str(wanted)}
        if before := new.metadata.annotations.get(REVISION):
            history = new.metadata.annotations.get(HISTORY)
            notes[HISTORY] = f"{history},{before}" if history else before
        patch["metadata"] = {"annotations": notes}
    # A change cause, say, that was written after the set was made.
    if not step.deployment.metadata.annotations.keys() <= _OWN_ANNOTATIONS:
        known = new.metadata.annotations
        late = {k: v for k, v in _annotations(step.deployment).items() if known.get(k) != v}
        if late:
            patch["metadata"] = {"annotations": late | patch.get("metadata", {}).get("annotations", {})}
    if new.spec.min_ready_seconds != step.deployment.spec.min_ready_seconds:
        patch["spec"] = {"minReadySeconds": step.deployment.spec.min_ready_seconds}
    if patch:
        step.actions.append(writes.patch(SETS, new, patch))
        # A resize in the same reconcile must not ask for the version before this patch.
        step.new = replace(new, metadata=replace(new.metadata, resource_version=""))
    sync_deployment_revision(step, str(max(wanted, revision_of(new))))


def sync_deployment_revision(step: Step, revision: str) -> None:
    """Set the Deployment's revision."""
    if step.deployment.metadata.annotations.get(REVISION) != revision:
        change = {"metadata": {"annotations": {REVISION: revision}}}
        step.actions.append(writes.patch(RESOURCE, step.deployment, change))


def scale(step: Step) -> None:
    """Apply a changed number of replicas: to the only active set, or to all sets in proportion."""
    active = [each for each in step.sets if each.spec.replicas > 0]
    if len(active) <= 1:
        only = active[0] if active else step.new or (step.sets[-1] if step.sets else None)
        if only is not None:
            resize(step, _current(step, only), step.replicas)
        return
    if step.new is not None and _is_saturated(step, step.new):
        for old in step.olds:
            if old.spec.replicas > 0:
                resize(step, old, 0)
        return
    if step.deployment.spec.strategy.type != "RollingUpdate":
        return
    sizes = proportional(step.replicas, step.surge, step.deployment.status.replicas, step.sets)
    for replica_set in step.sets:
        if replica_set.metadata.name in sizes:
            resize(step, _current(step, replica_set), sizes[replica_set.metadata.name])


def _current(step: Step, each: ReplicaSet) -> ReplicaSet:
    """Return the set as this reconcile has already changed it."""
    return step.new if step.new is not None and step.new.metadata.uid == each.metadata.uid else each


def _is_saturated(step: Step, new: ReplicaSet) -> bool:
    return (
        new.spec.replicas == step.replicas
        and new.metadata.annotations.get(DESIRED) == str(step.replicas)
        and new.status.available_replicas == step.replicas
    )


def clean_up(step: Step) -> None:
    """Delete the oldest empty sets beyond the history limit, once the rollout is complete."""
    if not step.deployment.spec.paused and not is_complete(step, counters_of(step)):
        return
    olds = sorted(
        (old for old in step.olds if old.metadata.deletion_timestamp is None),
        key=lambda old: (revision_of(old), old.metadata.creation_timestamp, old.metadata.name),
    )
    for old in olds[: max(0, len(olds) - step.deployment.spec.revision_history_limit)]:
        is_empty = old.status.replicas == 0 and old.spec.replicas == 0
        if is_empty and old.metadata.generation <= old.status.observed_generation:
            step.actions.append(Delete(SETS, old.metadata.key, uid=old.metadata.uid))
