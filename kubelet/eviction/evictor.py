"""Ends pods because of their node: preemption, eviction, node shutdown. Pure.

Source: kubelet 5.4, 7, 8; upstream `pkg/kubelet/eviction`, `pkg/kubelet/preemption` (reasons, messages).
"""

from collections.abc import Callable

from kubelet.effects import Outbox
from kubelet.eviction.manager import NodePressure
from kubelet.pod.table import PodTable
from kubelet.view import KubeletPod, WorkerKey


class Evictor:
    """Ends pods with the cause, reason and message that their status shows. Has no state.

    `staged_pod`: returns the pod if stages move it, None otherwise. `end_staged`: ends such a pod, with reason and
    message.
    """

    def __init__(
        self,
        table: PodTable,
        pressure: NodePressure,
        out: Outbox,
        *,
        staged_pod: Callable[[WorkerKey], KubeletPod | None],
        end_staged: Callable[[WorkerKey, float, str, str], None],
    ) -> None:
        self._table, self._pressure, self._out = table, pressure, out
        self._staged_pod, self._end_staged = staged_pod, end_staged

    def end_by_key(self, victim: WorkerKey, grace_s: float, now: float, cause: str, reason: str, message: str) -> None:
        """End a pod within the grace period. A pod that stages move ends at once: it has no containers to stop."""
        if (machine := self._table.pods.get(victim)) is not None:
            self._table.end(machine, now, cause, reason, message, grace_s)
            return
        self._end_staged(victim, now, reason, message)

    def preempt(self, victim: WorkerKey, resource: str, now: float) -> None:
        """End a pod so that a critical pod, which lacks this resource, fits."""
        machine = self._table.pods.get(victim)
        pod = machine.pod if machine is not None else self._staged_pod(victim)
        if pod is None:
            return
        self._out.counts.add("kubelet_preemptions", resource)
        message = "Preempted in order to admit critical pod"
        self._out.event(pod, "Preempting", message, "Warning")
        grace_s = float(pod.spec.termination_grace_period_seconds)
        self.end_by_key(victim, grace_s, now, "preempted", "Preempting", message)

    def relieve_pressure(self, now: float) -> None:
        """Check the node for pressure and evict pods if necessary (kubelet 7)."""
        for victim in self._pressure.look(self._table.pods, now):
            pod = self._table.pods[victim.key]
            self._out.event(pod.pod, "Evicted", victim.message, "Warning")
            self._out.counts.add("kubelet_evictions", victim.signal)
            cause = "evicted" if victim.is_disruption else "over limit"
            self._table.end(pod, now, cause, "Evicted", victim.message, victim.grace_s)
