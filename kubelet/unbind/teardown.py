"""The pods of one node that are torn down to be unbound, since their start failed over and over. Pure.

`manager` asks the API server for an unbind; here it is decided when: mostly once nothing of the pod runs any more, with
`unbind_teardown=after` before. Source: kubelet-unbinding 2, 6.2.
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
    """What admission does with a pod that is not to stay: it has it unbound, or decides about it otherwise."""

    def ask_first(self, pod: KubeletPod, key: WorkerKey, rejection: Rejection, now: float) -> None:
        """Have a pod unbound whose teardown only begins."""
        ...

    def torn_down(self, pod: KubeletPod, key: WorkerKey, took_s: float, now: float) -> bool:
        """Go on with a pod whose teardown has ended; return whether it was asked for before."""
        ...

    def unbind(self, pod: KubeletPod, key: WorkerKey, rejection: Rejection, now: float, *, torn_s: float) -> None:
        """Have a pod unbound whose teardown took so many seconds."""
        ...


class UnbindTeardowns:
    """Remembers why each of these pods is torn down, and since when, until nothing of it runs any more."""

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
        """Why pods are torn down to be unbound, and since when."""
        table.on(StartFailed, self._start_failed)

    def is_unbinding(self, key: WorkerKey) -> bool:
        """Whether the pod is torn down to be unbound."""
        return key in self._unbinding

    def _start_failed(self, pod: Pod, effect: StartFailed, now: float) -> None:
        """The start fails over and over: unbind the pod if that is configured, mostly once it is torn down."""
        key, rejection = pod.key, Rejection(effect.reason, effect.message)
        if not pod.may_be_unbound or not self._unbinds.may_begin(pod.pod, rejection.reason, now):
            return
        self._versions.suppress(key)
        self._unbinding[key] = rejection, now
        if self._asks_first:
            self._unbinder.ask_first(pod.pod, key, rejection, now)
        self._table.perform(pod, pod.terminate(now, REMOVED_GRACE_S, "unbound"), now)

    def drop(self, pod: Pod, now: float) -> None:
        """Nothing of the pod runs any more, and its object is gone: there is nothing left to unbind."""
        unbinding = self._unbinding.pop(pod.key, None)
        if unbinding is not None:
            self._unbinder.torn_down(pod.pod, pod.key, now - unbinding[1], now)

    def finish(self, pod: Pod, now: float) -> bool:
        """Nothing of the pod runs any more: have it unbound if it was torn down for that; return whether it was."""
        key = pod.key
        unbinding = self._unbinding.pop(key, None)
        if unbinding is None:
            return False
        self._table.forget(key)
        rejection, took_s = unbinding[0], now - unbinding[1]
        if not self._unbinder.torn_down(pod.pod, key, took_s, now):
            self._unbinder.unbind(pod.pod, key, rejection, now, torn_s=took_s)
        return True
