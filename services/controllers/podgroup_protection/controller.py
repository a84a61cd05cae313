"""Keep a pod group while a pod that has not ended refers to it.

Every group gets the finalizer; a group being deleted loses it once all its members have ended or are gone.
Source: preemption 6.1; upstream `podgroupprotection`.
"""

from collections.abc import Iterable

from services.api.kinds.pod import Pod
from services.api.kinds.podgroup import PROTECTION_FINALIZER, PodGroup
from services.api.meta import Key
from services.api.switches import Switches
from services.reconcile import writes
from services.reconcile.actions import NOTHING, Result
from services.reconcile.claim_release import Releases, releasing
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch
from services.reconcile.interest import Interest

RESOURCE = "podgroups.scheduling.k8s.io"


class PodGroupProtection:
    """Members of each group; a lookup replaces a list of all pods.

    Invariant: `_members` holds the uids of the pods that refer to a group and have not ended.
    """

    def __init__(self) -> None:
        self._members: dict[Key, dict[str, None]] = {}

    def pod_changed(self, change: Change[Pod], listers: Listers) -> Iterable[Key]:
        """Track the pod; return its group when the pod no longer needs it."""
        pod = change.object
        if pod.spec.scheduling_group is None:
            return ()
        group = Key(pod.metadata.namespace, pod.spec.scheduling_group.pod_group_name)
        if change.new is not None and not change.new.is_terminal:
            self._members.setdefault(group, {})[pod.metadata.uid] = None
            return ()
        members = self._members.get(group, {})
        members.pop(pod.metadata.uid, None)
        if not members:
            self._members.pop(group, None)
        return (group,)

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Add the finalizer to a live group; remove it from a deleted group without members."""
        group = listers.of(PodGroup).get(key)
        if group is None:
            return NOTHING
        finalizers = group.metadata.finalizers
        has_it = PROTECTION_FINALIZER in finalizers
        if group.metadata.deletion_timestamp is None:
            wanted = (*finalizers, PROTECTION_FINALIZER)
            return NOTHING if has_it else Result((writes.finalizers(RESOURCE, group, wanted),))
        if not has_it or self._members.get(key):
            return NOTHING
        left = (each for each in finalizers if each != PROTECTION_FINALIZER)
        return Result((writes.finalizers(RESOURCE, group, left),))


def _build(switches: Switches) -> Controller:
    memory = PodGroupProtection()
    watches = (Watch(Pod, memory.pod_changed, Interest(has="spec.scheduling_group")),)
    controller = Controller("podgroup-protection", PodGroup, memory.reconcile, watches=watches)
    return releasing(controller, switches, Releases(PodGroup, lambda group, listers: False))


CONTROLLER = Registration("podgroup-protection", _build, start_order=11)
