"""Pod changes for a controller that makes pods: the owner of each pod, and the expectations it fulfils.

Source: controllers 1.2 and 1.4; upstream `addPod`, `updatePod` and `deletePod` of these controllers.
"""

from services.api.kinds.daemonset import DaemonSet
from services.api.kinds.pod import Pod
from services.api.kinds.replicaset import ReplicaSet
from services.api.kinds.replicationcontroller import ReplicationController
from services.api.meta import Key
from services.controllers.shared_ownership import Orphans, Workload, adopters, owner_key
from services.reconcile.actions import Action, Batch, Create, Delete, RecordEvent, event
from services.reconcile.controller import Change, Listers, refusal_message
from services.reconcile.expectations import Expectations

Refusal = tuple[str, str]
"""Reason and message of the first failed call for pods."""
REJECTED_AGAIN_S = 10.0
"""Seconds until the next look after a request for pods: a creation refused for good causes no change event."""


def is_refusal(reason: str) -> bool:
    """Whether a call itself failed, instead of being skipped after a failure in its batch."""
    return not reason.startswith("not performed")


def deletions(owner: Workload, pods: list[Pod]) -> list[Action | Batch]:
    """Return the deletions of an owner's pods, each with its Event."""
    units: list[Action] = []
    for pod in pods:
        units.append(Delete("pods", pod.metadata.key, uid=pod.metadata.uid))
        units.append(event(owner, "SuccessfulDelete", f"Deleted pod: {pod.metadata.name}"))
    return [Batch(tuple(units))] if units else []


class OwnedPods:
    """One controller's record of its pods. `orphans`: pods without a controller, some of which it may adopt.

    `expectations` by owner key are lowered by observed changes, and by failed calls.
    """

    def __init__(self, view: type[ReplicaSet] | type[DaemonSet] | type[ReplicationController]) -> None:
        """`view`: the owner's kind."""
        self.expectations = Expectations()
        self.orphans = Orphans()
        self._view = view
        self._created: dict[Key, list[str]] = {}
        """Pods seen that had been asked for; an Event names each."""
        self._refusals: dict[Key, Refusal] = {}

    def on_changed(self, change: Change[Pod], listers: Listers) -> list[Key]:
        """Lower expectations and return the affected owners."""
        old, new = change.old, change.new
        self.orphans.note(old, new)
        if old is not None and new is not None and old.metadata.uid != new.metadata.uid:
            # The watch was behind: one pod went and another came under its name.
            return [*self._on_deleted(old, listers), *self._came(new, listers)]
        if new is None:
            assert old is not None
            return self._on_deleted(old, listers)
        if old is None:
            return self._came(new, listers)
        return self._on_updated(old, new, listers)

    def owner(self, pod: Pod, listers: Listers) -> Key | None:
        """Return the key of the pod's owner, unless another object now has that name."""
        key = owner_key(self._view, pod.metadata)
        if key is None:
            return None
        current_owner = listers.of(self._view).get(key)
        reference = pod.metadata.controller
        assert reference is not None
        return key if current_owner is None or current_owner.metadata.uid == reference.uid else None

    def on_failed(self, key: Key, action: Action, reason: str) -> None:
        """Undo the expectation of a failed call, and keep the first failure for a report."""
        match action:
            case Create() if action.resource == "pods":
                self.expectations.creation_observed(key)
                refusal = "FailedCreate", f"Error creating: {refusal_message(reason)}"
            case Delete() if action.resource == "pods":
                self.expectations.deletion_observed(key, action.uid)
                refusal = "FailedDelete", f"Error deleting: {refusal_message(reason)}"
            case _:
                return
        if is_refusal(reason):
            self._refusals.setdefault(key, refusal)

    def take_news(
        self, owner: ReplicaSet | DaemonSet | ReplicationController
    ) -> tuple[list[RecordEvent], Refusal | None]:
        """Return the Events of requested pods that were seen since the last call, and the refusal."""
        key = owner.metadata.key
        events = [event(owner, "SuccessfulCreate", f"Created pod: {name}") for name in self._created.pop(key, ())]
        refusal = self._refusals.pop(key, None)
        if refusal is not None:
            events.append(event(owner, *refusal, warns=True))
        return events, refusal

    def forget(self, key: Key) -> None:
        """Forget a deleted owner."""
        self.expectations.forget(key)
        self._created.pop(key, None)
        self._refusals.pop(key, None)

    def _on_deleted(self, pod: Pod, listers: Listers) -> list[Key]:
        if (key := self.owner(pod, listers)) is None:
            return []
        self.expectations.deletion_observed(key, pod.metadata.uid)
        return [key]

    def _came(self, pod: Pod, listers: Listers) -> list[Key]:
        if pod.metadata.deletion_timestamp is not None:
            return self._on_deleted(pod, listers)
        if (key := self.owner(pod, listers)) is None:
            return self._wanting(pod, listers)
        if self.expectations.pending_counts(key)[0]:
            self._created.setdefault(key, []).append(pod.metadata.name)
        self.expectations.creation_observed(key)
        return [key]

    def _on_updated(self, old: Pod, new: Pod, listers: Listers) -> list[Key]:
        after = self.owner(new, listers)
        has_same_owners = old.metadata.owner_references == new.metadata.owner_references
        before = after if has_same_owners else self.owner(old, listers)
        # Only a deletion lowers anything: an unbind is a change without deletionTimestamp.
        if new.metadata.deletion_timestamp is not None and after is not None:
            self.expectations.deletion_observed(after, new.metadata.uid)
        if after is not None:
            return [after] if before in (None, after) else [before, after]
        keys = [before] if before is not None else []
        if old.metadata.labels != new.metadata.labels or before is not None:
            keys += [key for key in self._wanting(new, listers) if key not in keys]
        return keys

    def _wanting(self, pod: Pod, listers: Listers) -> list[Key]:
        return adopters(self._view, pod, listers) if pod.metadata.labels else []
