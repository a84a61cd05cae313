"""Pods of one node that stages move: taken over from the kubelet's machines, counted, ended. Pure.

Such a pod has no machine, and keeps its capacity. If a stage is to move a running pod, its containers are first ended
without a status update. If no stage chooses a pod that is being deleted, the kubelet ends it. Source: decision 0078.
"""

from collections.abc import Callable

from kubelet.admission.capacity import NodeCapacity
from kubelet.effects import Outbox
from kubelet.pod.context import WallTimes
from kubelet.pod.pod import REMOVED_GRACE_S, Pod
from kubelet.pod.states import PodState
from kubelet.pod.table import PodTable
from kubelet.stages.manager import StageManager
from kubelet.status.manager import StatusManager
from kubelet.view import KubeletPod, WorkerKey, is_static


class StagedPods:
    """The kubelet's side of the pods that stages move.

    Invariant: a key is in at most one of the table's pods and the stage manager's.

    `is_unbinding`: whether a pod is torn down to be unbound. `offer`: decides again about waiting pods and resizes;
    called with the trigger and the time.
    """

    def __init__(
        self,
        table: PodTable,
        statuses: StatusManager,
        capacity: NodeCapacity,
        out: Outbox,
        times: WallTimes,
        *,
        is_unbinding: Callable[[WorkerKey], bool],
        offer: Callable[[str, float], None],
    ) -> None:
        self.manager: StageManager | None = None
        """Stage manager of a node whose pods stages may move, otherwise None; the shell sets it."""
        self._table, self._statuses, self._capacity, self._out, self._times = table, statuses, capacity, out, times
        self._is_unbinding, self._offer = is_unbinding, offer
        self._ending: set[WorkerKey] = set()
        """Pods whose containers are being ended because a stage moves them."""

    # --- pods come ---

    def took(self, pod: KubeletPod) -> bool:
        """Whether stages moved this pod before this kubelet began, or the pod may not be run any more."""
        return self.manager is not None and self.manager.took(pod)

    def start(self, pod: KubeletPod, key: WorkerKey, now: float) -> bool:
        """Let stages move a pod that was just admitted, if they choose it; return whether they do."""
        if self.manager is None or is_static(pod) or not self.manager.chooses(pod):
            return False
        self.manager.begin(key, pod, now)
        return True

    def begin(self, key: WorkerKey, pod: KubeletPod, now: float) -> None:
        """Let stages move a pod that is counted already. Requires a stage manager."""
        assert self.manager is not None
        self.manager.begin(key, pod, now)

    def hand_over(self, machine: Pod, pod: KubeletPod, now: float) -> bool:
        """If a stage may move the pod now, begin to end its containers without a status update; return whether so."""
        key = machine.key
        if self.manager is None or machine.termination is not None or self._is_unbinding(key) or is_static(pod):
            return False
        if machine.state == PodState.TERMINATED or not self.manager.wants(pod, now):
            return False
        machine.pod = pod
        self._statuses.versions.suppress(key)
        self._ending.add(key)
        self._table.perform(machine, machine.terminate(now, REMOVED_GRACE_S, "staged"), now)
        return True

    def finish(self, key: WorkerKey) -> bool:
        """Handle the end of a pod's containers; return whether they were ended for stages, which take it over next."""
        if key not in self._ending:
            return False
        self._ending.discard(key)
        return key not in self._table.gone

    def take_over(self, key: WorkerKey, pod: KubeletPod | None, now: float) -> None:
        """Let stages move a pod whose containers were ended for them. `pod`: None if the node lost it meanwhile."""
        if self.manager is None or pod is None:
            self._capacity.release(key)
            return
        self.manager.begin(key, pod, now)
        self._end_unmoved(key, pod, now)

    # --- changes from the API server and the clock ---

    def stages_changed(self, now: float) -> None:
        """Hand over the pods that stages may drive now; end the deleted pods that stages no longer drive."""
        if self.manager is None:
            return
        for machine in list(self._table.pods.values()):
            self.hand_over(machine, machine.pod, now)
        for key, staged in list(self.manager.pods.items()):
            self._end_unmoved(key, staged.pod, now)

    def update(self, key: WorkerKey, pod: KubeletPod, now: float) -> bool:
        """Take a newer view of a pod; return whether stages move it."""
        if self.manager is None or key not in self.manager.pods:
            return False
        self.manager.on_changed(key, pod, now)
        if pod.is_terminal and self._capacity.release(key):
            self._offer("pod_terminated", now)
        self._end_unmoved(key, pod, now)
        return True

    def due(self, key: WorkerKey, now: float) -> None:
        """Handle the end of a stage's delay."""
        if self.manager is not None:
            self.manager.due(key, now)

    # --- pods go ---

    def pod_of(self, key: WorkerKey) -> KubeletPod | None:
        """Return the pod if stages move it, None otherwise."""
        staged = self.manager.pods.get(key) if self.manager is not None else None
        return staged.pod if staged is not None else None

    def remove(self, key: WorkerKey, now: float) -> bool:
        """Forget a pod whose object is gone or belongs to another node; return whether stages moved it."""
        if self.manager is None or self.manager.forget(key) is None:
            return False
        self._out.end_span(key, "removed")
        if self._capacity.release(key):
            self._offer("pods_removed", now)
        return True

    def end(self, key: WorkerKey, now: float, reason: str, message: str) -> None:
        """End a staged pod because of the node, with reason and message; it has no containers to stop."""
        pod = self.manager.forget(key) if self.manager is not None else None
        if pod is None:
            return
        disruption = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "TerminationByKubelet",
            "message": message,
            "lastTransitionTime": self._times.text(now),
        }
        final = {"phase": "Failed", "reason": reason, "message": message, "conditions": [disruption]}
        self._statuses.set_final(key, pod, final, now)
        self._capacity.release(key)
        self._offer("pod_terminated", now)

    def _end_unmoved(self, key: WorkerKey, pod: KubeletPod, now: float) -> None:
        """End a pod that is being deleted and that no stage chooses any more."""
        if self.manager is None or pod.metadata.deletion_timestamp is None or self.manager.chooses(pod):
            return
        self.manager.forget(key)
        if pod.is_terminal:
            self._statuses.delete(key, pod)
        else:
            self._statuses.set_final(key, pod, {"phase": "Failed"}, now)
        if self._capacity.release(key):
            self._offer("pod_terminated", now)
