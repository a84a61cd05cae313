"""The device plugins of one node: what they say changes what the node has, who may start, and what is told. Pure.

Only nodes whose definition takes plugins have this. Source: kubelet 2.1, 5.5; KEP-4680 (health of devices in the
status of containers).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kubelet.admission.devices import DeviceDesk
from kubelet.admission.predicates import Ledger
from kubelet.effects import SetTimer
from kubelet.managers.device_calls import (
    Answer,
    Device,
    DevicesChanged,
    Failed,
    Options,
    PreStart,
    Registration,
    Share,
)
from kubelet.managers.endpoints import DeviceEndpoints
from kubelet.managers.resource_managers import Rejection, ResourceManagers, unexpected
from kubelet.outbox import Outbox
from kubelet.pod.worker import PodWorker
from kubelet.view import WorkerKey
from services.api.meta import Document

TIMER = "devices"
_NODE = WorkerKey("", 0)


class DevicePlugins:
    """Invariant: the ledger lets pods have as many devices as the device manager has room for."""

    def __init__(self, managers: ResourceManagers, ledger: Ledger, out: Outbox, *, tells_health: bool) -> None:
        self._managers, self._ledger, self._out = managers, ledger, out
        self._tells_health = tells_health
        self.endpoints = DeviceEndpoints(managers.devices)
        self.desk = DeviceDesk(managers, self.endpoints, out)
        self._starting: dict[int, tuple[WorkerKey, str, list[PreStart]]] = {}
        """Containers that wait for PreStartContainer, by the number of the call: what is still to be called."""

    # --- plugins ---

    def restore(self, resources: Iterable[str], now: float) -> None:
        """A former kubelet knew plugins for these."""
        self.endpoints.restore(resources, now)
        self._changed(now)

    def refused(self, asked: Registration) -> str:
        """Return why a registration is refused; "" when it is not."""
        why = self.endpoints.refused(asked)
        self._out.count(f'kubelet_device_plugin_registration_total{{resource_name="{asked.resource}"}}')
        return why

    def connected(self, resource: str, options: Options, now: float) -> int:
        """A plugin was reached; return the number of its connection."""
        number = self.endpoints.connected(resource, options)
        self._changed(now)
        return number

    def listed(self, resource: str, number: int, devices: Sequence[Device], now: float) -> list[str] | None:
        """Take a plugin's list; return whose health changed. None: it is not the resource's plugin any more."""
        changed = self.endpoints.listed(resource, number, devices)
        if changed is not None:
            self._changed(now)
        return changed

    def gone(self, resource: str, number: int, now: float) -> list[str] | None:
        """A plugin is gone; return whose health changed. None: it is not the resource's plugin any more."""
        changed = self.endpoints.gone(resource, number, now)
        if changed is not None:
            self._changed(now)
        return changed

    def due(self, now: float) -> None:
        """Some plugin may have been gone for too long."""
        if self.endpoints.expire(now):
            self._changed(now)

    def _changed(self, now: float) -> None:
        self.reckon()
        self._out.effects.append(DevicesChanged(tuple(self.endpoints.registered())))
        if (at_s := self.endpoints.next_expiry_s) is not None:
            self._out.effects.append(SetTimer(at_s, TIMER, _NODE))

    def reckon(self) -> None:
        """Let pods have what there is, and what they have already."""
        for resource in self.capacity():
            self._ledger.allocatable[resource] = self._managers.devices.room(resource)
            self._ledger.used.setdefault(resource, 0)

    def capacity(self) -> Mapping[str, tuple[int, int]]:
        """Return (capacity, allocatable) of every resource of a plugin, as the Node shows it."""
        return self._managers.devices.capacity()

    # --- pods ---

    def begun(self, worker: PodWorker) -> bool:
        """Let a pod's containers know how their devices are; return whether that changed its status."""
        worker.pre_start = frozenset(
            share.container for share in worker.allocation.devices if self.endpoints.wants_pre_start(share.resource)
        )
        return self._tell_health(worker)

    def readmitted(self, worker: PodWorker) -> Rejection | None:
        """Return why a pod of a former kubelet cannot go on: a container is to start again without its devices.

        Containers that run keep what they have, whatever became of it (k/k #109595).
        """
        waiting = {c.name for c in worker.containers if not c.is_running and c.may_start}
        for share in worker.allocation.devices:
            if share.container in waiting and self._managers.devices.is_plugged(share.resource):
                trouble = self._managers.devices.trouble(share.resource, share.ids)
                if trouble:
                    return unexpected(trouble)
        return None

    def _tell_health(self, worker: PodWorker) -> bool:
        if not self._tells_health:
            return False
        told: dict[str, list[Document]] = {}
        for share in worker.allocation.devices:
            told.setdefault(share.container, []).append(self._health_of(share))
        changed = told != worker.device_health
        worker.device_health = told
        return changed

    def _health_of(self, share: Share) -> Document:
        devices = self._managers.devices
        return {
            "name": share.resource,
            "resources": [
                {"resourceID": device, "health": "Healthy" if devices.health(share.resource, device) else "Unhealthy"}
                for device in sorted(share.ids)
            ],
        }

    # --- before a container starts ---

    def pre_start(self, worker: PodWorker, container: str) -> None:
        """A container is about to start: ask the plugins that want to know."""
        calls = [
            PreStart(share.resource, share.ids)
            for share in worker.allocation.devices
            if share.container == container and self.endpoints.wants_pre_start(share.resource)
        ]
        self._starting[self.desk.send(calls[0])] = (worker.key, container, calls[1:])

    def started(self, number: int, answer: Answer) -> tuple[WorkerKey, str, str] | None:
        """Take the answer to PreStartContainer: (whose, which container, why not). None: more is asked, or not ours."""
        asked = self._starting.pop(number, None)
        if asked is None:
            return None
        key, container, calls = asked
        if isinstance(answer, Failed):
            return key, container, f"device plugin PreStartContainer rpc failed with err: {answer.text}"
        if calls:
            self._starting[self.desk.send(calls[0])] = (key, container, calls[1:])
            return None
        return key, container, ""
