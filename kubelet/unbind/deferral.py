"""Deferred admissions: which rejected pods wait on the node for a second try, and for how long. Pure.

A rejection that time may cure (a device plugin is restarting, a pod is still leaving) need not be final:
the pod stays Pending and bound, and is decided again when a pod leaves the node, when a device plugin has
listed its devices, and every `defer.period_s`, until `defer.timeout_s` are over. The ledger does not count
it meanwhile and nothing is written to the API, so the scheduler keeps its capacity reserved: a deferred pod
is a hostage of its node. Source: kubelet-unbinding 2 (`defer`, `defer_then_unbind`) and 6.1;
kubernetes/kubernetes PR #139959.
"""

from fnmatch import fnmatchcase

import msgspec

from kubelet.effects import Outbox, SetTimer
from kubelet.managers.allocation import DeviceRejection, Rejection
from kubelet.switches import KubeletSwitches
from kubelet.unbind.unbinding import EXCLUDE_MAX_REASONS
from kubelet.view import KubeletPod, WorkerKey, is_static

_EARLY_S = 1e-6


class _Deferred(msgspec.Struct):
    until_s: float
    next_s: float


class Deferral:
    """The deferred pods of one node.

    Invariant: a key is in `waiting` from its first deferred rejection until it is admitted, gone or given up.
    """

    def __init__(self, switches: KubeletSwitches, out: Outbox) -> None:
        self.waiting: dict[WorkerKey, _Deferred] = {}
        self._switches, self._out = switches, out

    def takes(self, pod: KubeletPod, key: WorkerKey, rejection: Rejection, now: float) -> bool:
        """Defer the rejected pod, or keep it deferred, and set its next timer; return whether it waits."""
        state = self.waiting.get(key)
        if not self._may_pass(pod, rejection):
            self.waiting.pop(key, None)
            return False
        if state is None:
            timeout_s = self._timeout_s(rejection)
            self._out.log("kubelet.defer", pod, key, {"reason": rejection.reason, "timeout_s": timeout_s})
            self._out.event(pod, "AdmissionDeferred", f"Tried again for {timeout_s:g} s: {rejection.reason}", "Normal")
            state = self.waiting[key] = _Deferred(now + timeout_s, now)
        elif now >= state.until_s - _EARLY_S:
            del self.waiting[key]
            self._out.counts.add("keplab_kubelet_pod_deferrals_total", "timeout")
            return False
        state.next_s = min(now + self._switches.defer_period_s, state.until_s)
        self._out.effects.append(SetTimer(state.next_s, "defer", key))
        return True

    def is_due(self, key: WorkerKey, now: float) -> bool:
        """Whether this timer is the newest one of the pod: a try in between has set another."""
        state = self.waiting.get(key)
        return state is not None and now >= state.next_s - _EARLY_S

    def on_admitted(self, key: WorkerKey) -> None:
        """Count a deferred pod that was admitted."""
        if self.waiting.pop(key, None) is not None:
            self._out.counts.add("keplab_kubelet_pod_deferrals_total", "admitted")

    def forget(self, key: WorkerKey) -> None:
        """Forget a pod that is gone or is being deleted."""
        self.waiting.pop(key, None)

    def final_rejection(self, rejection: Rejection) -> Rejection:
        """Return the rejection of a pod whose deferral ended without admission."""
        return Rejection(rejection.reason, f"{rejection.message} (deferred for {self._timeout_s(rejection):g} s)")

    def _timeout_s(self, rejection: Rejection) -> float:
        """Return how long a pod waits; for missing devices that may be another time (switch device.defer_timeout_s)."""
        switches = self._switches
        own = isinstance(rejection, DeviceRejection) and switches.device_defer_timeout_s > 0
        return switches.device_defer_timeout_s if own else switches.defer_timeout_s

    def _may_pass(self, pod: KubeletPod, rejection: Rejection) -> bool:
        """Whether time may cure this: with `defer` all that is no lack of the node's, else what is marked transient."""
        switches, reason = self._switches, rejection.reason
        defers = switches.on_reject in ("defer", "defer-then-unbind")
        if not defers or is_static(pod) or self._timeout_s(rejection) <= 0:
            return False
        if switches.on_reject == "defer":
            return reason not in EXCLUDE_MAX_REASONS
        return any(fnmatchcase(reason, marked) for marked in switches.defer_reasons)
