"""Remove failed pods after a while: the descheduler's strategy RemoveFailedPods, as today's cure for
rejections.

Every `descheduler.interval_s` it deletes Failed pods that have one of the reasons, a minimum age, and no
excluded owner. Its limits are the point of comparison: it comes after the fact, races with controllers that
replaced the pod long ago, has no influence on the chosen node, and never sees a pod that is stuck Pending.
Upstream's limits per round are left out. Source: kubelet-unbinding 2; kubernetes-sigs/descheduler,
RemoveFailedPods.
"""

from fnmatch import fnmatchcase

from services.api.kinds.pod import Pod
from services.api.meta import Key
from services.api.switches import Switches
from services.controllers.shared_pods import seconds_of
from services.controllers.shared_switches import DeschedulerSwitches
from services.reconcile.actions import Delete, RecordEvent, Result, event
from services.reconcile.controller import Controller, Listers, Moment, Registration


class RemoveFailedPods:
    """Rules of one round; no state is kept between rounds."""

    def __init__(self, switches: Switches) -> None:
        self._reasons = tuple(part for part in switches.of(DeschedulerSwitches).reasons.split("+") if part)
        self._min_lifetime_s = switches.of(DeschedulerSwitches).min_lifetime_s
        self._excluded_owners = tuple(switches.of(DeschedulerSwitches).excluded_owners.split("+"))

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Delete the pods due in this round, the oldest first, each with an Event."""
        actions: list[Delete | RecordEvent] = []
        due = (pod for pod in listers.of(Pod).all() if self._is_due(pod, moment.wall_s))
        for pod in sorted(due, key=lambda pod: (seconds_of(pod.metadata.creation_timestamp), pod.metadata.key)):
            why = f"pod failed on {pod.spec.node_name or 'no node'}: {pod.status.reason}"
            actions.append(Delete("pods", pod.metadata.key, uid=pod.metadata.uid, grace_period_s=0))
            actions.append(event(pod, "RemoveFailedPods", why))
        return Result(tuple(actions))

    def _is_due(self, pod: Pod, wall_s: float) -> bool:
        meta, owner = pod.metadata, pod.metadata.controller
        return (
            pod.status.phase == "Failed"
            and meta.deletion_timestamp is None
            and not (owner is not None and owner.kind in self._excluded_owners)
            and wall_s - seconds_of(meta.creation_timestamp) >= self._min_lifetime_s
            and any(fnmatchcase(pod.status.reason, wanted) for wanted in self._reasons)
        )


def _build(switches: Switches) -> Controller:
    reconcile, period_s = RemoveFailedPods(switches).reconcile, switches.of(DeschedulerSwitches).interval_s
    return Controller("descheduler", None, reconcile, reads=(Pod,), period_s=period_s)


CONTROLLER = Registration(
    "descheduler", _build, start_order=20, is_wanted=lambda switches: switches.of(DeschedulerSwitches).is_on
)
