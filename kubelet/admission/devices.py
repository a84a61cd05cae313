"""Admissions that involve device plugins: one pod at a time, with the calls its devices need. Pure.

Kubernetes calls plugins in the middle of an admission, and admits no other pod meanwhile. Here the decision
is put off until the plugin answers: the pod waits with its share taken, and the node's other pods wait for
their turn. The plugin's answer decides. An answer about preferences lets the decision be made again; it
comes out the same up to that question. Source: kubelet 5.5.
"""

from collections.abc import Sequence

import msgspec

from kubelet.admission.predicates import Admitted, PreemptionNeeded
from kubelet.effects import Outbox
from kubelet.managers.allocation import Rejection, devices_unexpected
from kubelet.managers.device_calls import Allocate, AllocateResult, Answer, Call, CallPlugin, Failed, Preference, Share
from kubelet.managers.resource_managers import ResourceManagers
from kubelet.view import WorkerKey


class _Waiting(msgspec.Struct):
    """The pod about which a plugin is being asked. `admitted` None: the call asks which devices to choose.

    `done`: the shares whose use the plugin has described, or that need no plugin.
    """

    key: WorkerKey
    number: int
    call: Call
    admitted: Admitted | None = None
    done: list[Share] = []
    is_gone: bool = False


Answered = tuple[WorkerKey | None, Admitted | Rejection | None]
"""The pod that stops waiting (None: it is gone) and the decision (None: decide it again with the answer)."""


class DeviceAdmission:
    """Calls device plugins for the pod that is being admitted.

    Invariant: at most one pod waits for a plugin, and exactly one call is under way for it.
    """

    def __init__(self, managers: ResourceManagers, out: Outbox) -> None:
        self._managers, self._devices, self._out = managers, managers.devices, out
        self._waiting: _Waiting | None = None
        self._numbers = 0

    @property
    def is_busy(self) -> bool:
        """Whether a plugin is being asked, so that no other pod can be decided."""
        return self._waiting is not None

    def takes(self, key: WorkerKey, outcome: Admitted | PreemptionNeeded | Rejection) -> bool:
        """Return whether plugins have to be asked before this outcome stands; if so, ask them.

        `on_answer` then returns how the admission goes on.
        """
        asked, self._devices.asked = self._devices.asked, None
        if asked is not None:
            if isinstance(outcome, Admitted):
                self._managers.release(outcome.allocation)
            self._ask(key, asked)
            return True
        self._devices.preferences.clear()
        if not isinstance(outcome, Admitted) or not self._has_plugged(outcome.allocation.devices):
            return False
        self._go_on(key, outcome, [])
        return True

    def _has_plugged(self, shares: Sequence[Share]) -> bool:
        return any(self._devices.is_plugged(share.resource) for share in shares)

    def _go_on(self, key: WorkerKey, admitted: Admitted, done: list[Share]) -> None:
        """Ask for the next share that is a plugin's; there is one."""
        shares = admitted.allocation.devices
        while not self._devices.is_plugged(shares[len(done)].resource):
            done.append(shares[len(done)])
        share = shares[len(done)]
        self._ask(key, Allocate(share.resource, share.ids), admitted, done)

    def _ask(self, key: WorkerKey, call: Call, admitted: Admitted | None = None, done: Sequence[Share] = ()) -> None:
        self._waiting = _Waiting(key, self.send(call), call, admitted, list(done))

    def send(self, call: Call) -> int:
        """Request a plugin call; return its number."""
        self._numbers += 1
        self._out.effects.append(CallPlugin(self._numbers, self._devices.serving(call.resource), call))
        return self._numbers

    def forget(self, key: WorkerKey) -> None:
        """Forget a pod that is gone: its devices are free, but the call to the plugin still runs."""
        waiting = self._waiting
        if waiting is None or waiting.key != key or waiting.is_gone:
            return
        waiting.is_gone = True
        if waiting.admitted is not None:
            self._managers.release(waiting.admitted.allocation)

    def on_answer(self, number: int, answer: Answer) -> Answered | None:
        """Take a plugin's answer. None: there is more to ask, or the call was for another pod.

        A pod that may run has its devices ready. If the plugin refused, all resources of the pod are released.
        """
        waiting = self._waiting
        if waiting is None or waiting.number != number:
            return None
        self._waiting = None
        if waiting.is_gone:
            return None, None
        if isinstance(waiting.call, Preference):
            failed = f"device plugin GetPreferredAllocation rpc failed with err: {_why(answer)}"
            self._devices.preferences[waiting.call] = answer if isinstance(answer, tuple) else failed
            return waiting.key, None
        assert waiting.admitted is not None
        if not isinstance(answer, AllocateResult):
            self._managers.release(waiting.admitted.allocation)
            return waiting.key, devices_unexpected(_why(answer))
        shares = waiting.admitted.allocation.devices
        done = [*waiting.done, msgspec.structs.replace(shares[len(waiting.done)], given=answer)]
        if self._has_plugged(shares[len(done) :]):
            self._go_on(waiting.key, waiting.admitted, done)
            return None
        allocation = msgspec.structs.replace(waiting.admitted.allocation, devices=(*done, *shares[len(done) :]))
        return waiting.key, Admitted(waiting.admitted.requests, allocation)


def _why(answer: Answer) -> str:
    if isinstance(answer, Failed):
        return answer.text
    return "no containers return in allocation response"
