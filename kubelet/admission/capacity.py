"""The resources that the pods of one node hold: counted in the ledger, allocated by resource managers, logged. Pure.

Amounts are those of `services.api.podresources`: whole numbers by resource name. Source: kubelet 5.1, 6; kep-1287 8.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kubelet.admission.predicates import Admitted, Ledger
from kubelet.effects import Outbox
from kubelet.managers.allocation import Allocation
from kubelet.managers.resource_managers import ResourceManagers
from kubelet.view import KubeletPod, WorkerKey
from services.api.podresources import Amounts


class NodeCapacity:
    """Counts each pod's resources from its admission until no container of it runs any more.

    `update_devices`: updates the free devices of plugins in the ledger; called whenever they may have changed.
    """

    def __init__(
        self, ledger: Ledger, managers: ResourceManagers, out: Outbox, *, update_devices: Callable[[], None]
    ) -> None:
        self._ledger, self._managers, self._out = ledger, managers, out
        self._update_devices = update_devices

    def advertise(self, old: Mapping[str, str], new: Mapping[str, str]) -> None:
        """Replace the resources (name: quantity) that other clients advertise on the Node, but not those of plugins."""
        self._ledger.advertise(old, new)
        self._update_devices()

    def count(self, pod: KubeletPod, key: WorkerKey, admitted: Admitted) -> None:
        """Count a pod that was just admitted, with its allocation."""
        self._ledger.add(key, pod, admitted.requests, admitted.allocation)
        self._log_admit(pod, key, admitted.requests, adopted=False)
        if admitted.allocation.devices:
            self._out.log("kubelet.devices", pod, key, {"shares": msgspec.to_builtins(admitted.allocation.devices)})

    def count_again(self, allocated: KubeletPod, key: WorkerKey, allocation: Allocation) -> list[str]:
        """Count a pod that an earlier kubelet admitted, and take its allocation from the managers' free resources.

        Returns the names of the resources of which the node has too little for the pod now.
        """
        requests = self._ledger.needs(allocated)
        self._managers.take(allocation)
        self._update_devices()
        return self._add_running(allocated, key, requests, allocation)

    def count_staged(self, pod: KubeletPod, key: WorkerKey, allocation: Allocation) -> None:
        """Count a pod that stages moved before this kubelet began; the managers have just made its allocation."""
        self._add_running(pod, key, self._ledger.needs(pod), allocation)

    def _add_running(self, pod: KubeletPod, key: WorkerKey, requests: Amounts, allocation: Allocation) -> list[str]:
        short = self._ledger.shortages(requests)
        self._ledger.add(key, pod, requests, allocation)
        if not short:
            # On a node that shrank the pod exceeds the capacity until it is stopped; that is no admission.
            self._log_admit(pod, key, requests, adopted=True)
        return short

    def release(self, key: WorkerKey) -> bool:
        """Stop counting the pod and free its allocation; return whether it was counted."""
        entry = self._ledger.remove(key)
        if entry is not None and not entry.allocation.is_empty:
            self._managers.release(entry.allocation)
            self._update_devices()
        return entry is not None

    def _log_admit(self, pod: KubeletPod, key: WorkerKey, requests: Amounts, *, adopted: bool) -> None:
        used, allocatable = dict(self._ledger.used), dict(self._ledger.allocatable)
        data: dict[str, Any] = {"requests": requests, "ledger": used, "allocatable": allocatable}
        if adopted:
            data["adopted"] = True
        self._out.log("kubelet.admit", pod, key, data | self._ledger.entries[key].allocation.fields())
