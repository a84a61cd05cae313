"""The writes that a StatefulSet's steps are, in the order in which one needs the other.

Whose the claims are comes first, then missing claims, then pods.
Source: controllers 4; upstream `pkg/controller/statefulset/stateful_pod_control.go`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from services.api.kinds.controllerrevision import ControllerRevision
from services.api.kinds.persistentvolumeclaim import PersistentVolumeClaim
from services.api.kinds.pod import Pod
from services.api.kinds.statefulset import StatefulSet
from services.api.meta import Document, Key
from services.controllers import shared_revisions as revisions
from services.controllers import shared_writes as writes
from services.controllers.statefulset.order import Desired, Steps
from services.controllers.statefulset.pods import (
    CLAIMS,
    claim_keys,
    claim_of,
    identity_labels,
    is_stale,
    owned_rightly,
    pod_name,
    pod_of,
)
from services.reconcile.actions import Action, Batch, Create, Delete, RecordEvent, event
from services.reconcile.controller import Listers


@dataclass(frozen=True)
class Known:
    """What one reconcile goes by. `pods`: the set's own, by number; `current`, `update`: its revisions."""

    stateful_set: StatefulSet
    document: Document
    pods: dict[int, Pod]
    current: ControllerRevision
    update: ControllerRevision


def is_blocked(stateful_set: StatefulSet, ordinal: int, listers: Listers) -> bool:
    """Whether a missing pod cannot be made yet: another pod has its name, or a claim of it is still being deleted."""
    name = pod_name(stateful_set, ordinal)
    if listers.of(Pod).get(Key(stateful_set.metadata.namespace, name)) is not None:
        return True
    claims = (listers.of(PersistentVolumeClaim).get(key) for key in claim_keys(stateful_set, ordinal))
    return any(claim is not None and is_stale(stateful_set, claim, name) for claim in claims)


def changes_of_steps(known: Known, desired: Desired, steps: Steps, listers: Listers) -> list[Action | Batch]:
    """Return the writes of the steps, and those that keep what is there as it should be."""
    here = [(n, known.pods[n]) for n in known.stateful_set.ordinals if n in known.pods]
    pending = [n for n, pod in here if pod.status.phase == "Pending" and pod.metadata.deletion_timestamp is None]
    claims = _missing_claims(known, [*pending, *steps.made], listers)
    made: list[Action] = []
    for ordinal in steps.made:
        name = desired.revision_of_new(ordinal)
        revision = known.current if name == known.current.metadata.name else known.update
        template = revisions.template_of(revision.data)
        made.append(Create("pods", pod_of(known.stateful_set, template, ordinal, name)))
        made.append(_pod_event(known.stateful_set, "Create", pod_name(known.stateful_set, ordinal)))
    ended = [each for pod in steps.recreated for each in _ended(known.stateful_set, pod)]
    for pod in (*steps.removed, *steps.replaced):
        ended += [_delete(pod), _pod_event(known.stateful_set, "Delete", pod.metadata.name)]
    return [*_kept(known, listers), *(Batch(tuple(each)) for each in (claims, made, ended) if each)]


def _kept(known: Known, listers: Listers) -> Iterable[Action]:
    """Give pods the labels of their identity, and claims the owners that the retention policy wants."""
    for ordinal, pod in known.pods.items():
        name = pod.metadata.name
        labels = identity_labels(name, ordinal)
        if pod.is_active and not labels.items() <= pod.metadata.labels.items():
            yield writes.patch("pods", pod, {"metadata": {"labels": labels}})
            yield _pod_event(known.stateful_set, "Update", name)
        is_wanted = ordinal in known.stateful_set.ordinals
        for key in claim_keys(known.stateful_set, ordinal):
            claim = listers.of(PersistentVolumeClaim).get(key)
            if claim is not None:
                yield from owned_rightly(known.stateful_set, pod, claim, is_wanted=is_wanted)


def _missing_claims(known: Known, ordinals: Iterable[int], listers: Listers) -> list[Action]:
    found: list[Action] = []
    for ordinal in ordinals:
        for key in claim_keys(known.stateful_set, ordinal):
            if listers.of(PersistentVolumeClaim).get(key) is None:
                found.append(Create(CLAIMS, claim_of(known.stateful_set, known.document, key)))
                pod = pod_name(known.stateful_set, ordinal)
                text = f"create Claim {key.name} Pod {pod} in StatefulSet {known.stateful_set.metadata.name} success"
                found.append(event(known.stateful_set, "SuccessfulCreate", text))
    return found


def _delete(pod: Pod) -> Delete:
    return Delete("pods", pod.metadata.key, uid=pod.metadata.uid)


def _ended(stateful_set: StatefulSet, pod: Pod) -> list[Action]:
    name, has_failed = pod.metadata.name, pod.status.phase == "Failed"
    end = "Failed" if has_failed else "Terminated"
    text = f"StatefulSet {stateful_set.metadata.key} is recreating {end.lower()} Pod {name}"
    reason = f"Recreating{end}Pod"
    return [_delete(pod), event(stateful_set, reason, text, warns=has_failed), _pod_event(stateful_set, "Delete", name)]


def _pod_event(stateful_set: StatefulSet, verb: str, pod: str) -> RecordEvent:
    text = f"{verb.lower()} Pod {pod} in StatefulSet {stateful_set.metadata.name} successful"
    return event(stateful_set, f"Successful{verb}", text)
