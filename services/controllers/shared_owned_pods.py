"""What a controller that makes pods learns from their changes: whose they are, and what it may stop waiting for.

Source: controllers 1.2 and 1.4; upstream `addPod`, `updatePod` and `deletePod` of these controllers.
"""

from __future__ import annotations

from services.api.kinds.daemonset import DaemonSet
from services.api.kinds.pod import Pod
from services.api.kinds.replicaset import ReplicaSet
from services.api.meta import Key
from services.controllers.shared_ownership import Orphans, owner_key, selector_of
from services.reconcile.controller import Change, Listers
from services.reconcile.expectations import Expectations


class OwnedPods:
    """One controller's books of pods. `orphans`: the pods without a controller, some of which it may adopt."""

    def __init__(self, view: type[ReplicaSet] | type[DaemonSet], expectations: Expectations) -> None:
        """`view`: the kind that owns the pods; `expectations` of its keys are lowered by what is seen."""
        self.orphans = Orphans()
        self._view = view
        self._expectations = expectations
        self._created: dict[Key, list[str]] = {}
        """Pods seen that had been asked for; an Event names each."""

    def changed(self, change: Change[Pod], listers: Listers) -> list[Key]:
        """Lower expectations and return the owners concerned."""
        old, new = change.old, change.new
        self.orphans.note(old, new)
        if old is not None and new is not None and old.metadata.uid != new.metadata.uid:
            # The watch was behind: one pod went and another came under its name.
            return [*self._gone(old, listers), *self._came(new, listers)]
        if new is None:
            assert old is not None
            return self._gone(old, listers)
        if old is None:
            return self._came(new, listers)
        return self._altered(old, new, listers)

    def owner(self, pod: Pod, listers: Listers) -> Key | None:
        """Return the key of the pod's owner, unless another object now has that name."""
        key = owner_key(self._view, pod.metadata)
        if key is None:
            return None
        found = listers.of(self._view).get(key)
        reference = pod.metadata.controller
        assert reference is not None
        return key if found is None or found.metadata.uid == reference.uid else None

    def take_created(self, key: Key) -> list[str]:
        """Return the names of pods that were asked for and have been seen since the last call."""
        return self._created.pop(key, [])

    def _gone(self, pod: Pod, listers: Listers) -> list[Key]:
        key = self.owner(pod, listers)
        if key is None:
            return []
        self._expectations.deletion_observed(key, pod.metadata.uid)
        return [key]

    def _came(self, pod: Pod, listers: Listers) -> list[Key]:
        if pod.metadata.deletion_timestamp is not None:
            return self._gone(pod, listers)
        key = self.owner(pod, listers)
        if key is None:
            return self._wanting(pod, listers)
        if self._expectations.awaited(key)[0]:
            self._created.setdefault(key, []).append(pod.metadata.name)
        self._expectations.creation_observed(key)
        return [key]

    def _altered(self, old: Pod, new: Pod, listers: Listers) -> list[Key]:
        before, after = self.owner(old, listers), self.owner(new, listers)
        # Only a deletion lowers anything: an unbind is a change without deletionTimestamp.
        if new.metadata.deletion_timestamp is not None and after is not None:
            self._expectations.deletion_observed(after, new.metadata.uid)
        if after is not None:
            return [after] if before in (None, after) else [before, after]
        found = [before] if before is not None else []
        if old.metadata.labels != new.metadata.labels or before is not None:
            found += [key for key in self._wanting(new, listers) if key not in found]
        return found

    def _wanting(self, pod: Pod, listers: Listers) -> list[Key]:
        """Return the owners whose selector matches an orphan."""
        if pod.metadata.controller is not None or not pod.metadata.labels:
            return []
        owners = listers.of(self._view).all(pod.metadata.namespace)
        return [o.metadata.key for o in owners if (found := selector_of(o)) and found.matches(pod.metadata.labels)]
