"""Teardown of pods that are to be unbound because their start failed repeatedly. Pure.

`manager` requests the unbind from the API server. This module decides when: usually after no container of the pod runs
any more, with `unbind_teardown=after` before the teardown. Source: kubelet-unbinding 2, 6.2.
"""

from typing import Protocol

from kubelet.effects import StartFailed
from kubelet.managers.allocation import Rejection
from kubelet.pod.pod import REMOVED_GRACE_S, Pod
from kubelet.pod.table import PodTable
from kubelet.status.versions import StatusVersions
from kubelet.switches import KubeletSwitches
from kubelet.unbind.manager import UnbindManager
from kubelet.view import KubeletPod, WorkerKey


class Unbinder(Protocol):
    """The part of admission that unbinds a pod, or decides about it again."""

    def ask_first(self, pod: KubeletPod, key: WorkerKey, rejection: Rejection, now: float) -> None:
        """Request the unbind of a pod whose teardown only begins."""
        ...

    def torn_down(self, pod: KubeletPod, key: WorkerKey, took_s: float, now: float) -> bool:
        """Go on with a pod whose teardown has ended; return whether its unbind was requested before the teardown."""
        ...

    def unbind(self, pod: KubeletPod, key: WorkerKey, rejection: Rejection, now: float, *, torn_s: float) -> None:
        """Unbind a pod. `torn_s`: how long its teardown took, in seconds."""
        ...


class UnbindTeardowns:
    """Tears down pods that are to be unbound; keeps the reason and the begin of each teardown until it has ended."""

    def __init__(
        self,
        table: PodTable,
        versions: StatusVersions,
        unbinds: UnbindManager,
        unbinder: Unbinder,
        switches: KubeletSwitches,
    ) -> None:
        self._table, self._versions, self._unbinds, self._unbinder = table, versions, unbinds, unbinder
        self._asks_first = switches.teardown == "after" and switches.unbind_api != "condition"
        self._unbinding: dict[WorkerKey, tuple[Rejection, float]] = {}
        """(rejection, begin in seconds) of each pod that is torn down to be unbound."""
        table.on(StartFailed, self._start_failed)

    def is_unbinding(self, key: WorkerKey) -> bool:
        """Whether the pod is torn down to be unbound."""
        return key in self._unbinding

    def _start_failed(self, pod: Pod, effect: StartFailed, now: float) -> None:
        """Unbind a pod whose start fails repeatedly, if that is configured: begin its teardown."""
        key, rejection = pod.key, Rejection(effect.reason, effect.message)
        if not pod.may_be_unbound or not self._unbinds.may_begin(pod.pod, rejection.reason, now):
            return
        self._versions.suppress(key)
        self._unbinding[key] = rejection, now
        if self._asks_first:
            self._unbinder.ask_first(pod.pod, key, rejection, now)
        self._table.perform(pod, pod.terminate(now, REMOVED_GRACE_S, "unbound"), now)

    def drop(self, pod: Pod, now: float) -> None:
        """Forget the teardown of a pod whose containers have ended and whose object is gone."""
        unbinding = self._unbinding.pop(pod.key, None)
        if unbinding is not None:
            self._unbinder.torn_down(pod.pod, pod.key, now - unbinding[1], now)

    def finish(self, pod: Pod, now: float) -> bool:
        """Unbind a pod whose containers have ended, if it was torn down for that; return whether it was."""
        key = pod.key
        unbinding = self._unbinding.pop(key, None)
        if unbinding is None:
            return False
        self._table.forget(key)
        rejection, took_s = unbinding[0], now - unbinding[1]
        if not self._unbinder.torn_down(pod.pod, key, took_s, now):
            self._unbinder.unbind(pod.pod, key, rejection, now, torn_s=took_s)
        return True
