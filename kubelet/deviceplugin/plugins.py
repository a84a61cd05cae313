"""The device plugins of one node: their reports change its resources, admissions, and pod statuses. Pure.

Only nodes whose definition takes plugins have this. Source: kubelet 2.1, 5.5; KEP-4680 (health of devices
in the status of containers).
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from kubelet.admission.devices import DeviceAdmission
from kubelet.admission.predicates import Ledger
from kubelet.effects import NODE_KEY, Outbox, PrepareDevices, SetTimer
from kubelet.managers.allocation import Rejection, devices_unexpected
from kubelet.managers.device_calls import (
    NOTHING_GIVEN,
    VERSION,
    Answer,
    Device,
    DevicesChanged,
    Failed,
    Options,
    PreStart,
    Registration,
    Share,
    is_extended,
)
from kubelet.managers.device_manager import DeviceManager
from kubelet.managers.resource_managers import ResourceManagers
from kubelet.pod.pod import Pod
from kubelet.pod.states import PodState
from kubelet.pod.table import PodTable
from kubelet.status.manager import StatusManager
from kubelet.view import KubeletPod, WorkerKey
from services.api.meta import Document

TIMER = "devices"


class DevicePlugins:
    """The device plugins of one node.

    Invariant: the ledger lets pods have as many devices as the device manager has free.
    """

    def __init__(
        self,
        managers: ResourceManagers,
        ledger: Ledger,
        table: PodTable,
        statuses: StatusManager,
        out: Outbox,
        *,
        shows_health: bool,
    ) -> None:
        self._devices, self._ledger, self._out = managers.devices, ledger, out
        self._table, self._statuses = table, statuses
        self._shows_health = shows_health
        table.on(PrepareDevices, self._pre_start)
        self.admission = DeviceAdmission(managers, out)
        self._starting: dict[int, tuple[WorkerKey, str, list[PreStart]]] = {}
        """Containers that wait for PreStartContainer, by the number of the call: what is still to be called."""

    def restore(self, resources: Iterable[str], now: float) -> None:
        """Restore the resources for which a former kubelet knew plugins."""
        self._devices.restore(resources, now)
        self._on_changed(now)

    def refusal(self, asked: Registration) -> str:
        """Return why a registration is refused, in Kubernetes' words; "" when it is accepted."""
        self._out.counts.add("kubelet_device_plugin_registration_total", asked.resource)
        if asked.version != VERSION:
            said = f'requested API version "{asked.version}" is not supported by kubelet.'
            return f'{said} Supported version is ["{VERSION}"]'
        return "" if is_extended(asked.resource) else f'the ResourceName "{asked.resource}" is invalid'

    def on_connected(self, resource: str, options: Options, now: float) -> int:
        """Note that a plugin was reached; return the number of its connection."""
        number = self._devices.on_connected(resource, options)
        self._on_changed(now)
        return number

    def update_devices(self, resource: str, number: int, devices: Sequence[Device], now: float) -> list[str] | None:
        """Take a plugin's list of devices; return the resources' devices whose health changed.

        None: the plugin no longer serves the resource.
        """
        changed = self._devices.update_devices(resource, number, devices)
        if changed is not None:
            self._on_changed(now)
        return changed

    def on_disconnected(self, resource: str, number: int, now: float) -> list[str] | None:
        """Note that a plugin is gone; return the devices whose health changed.

        None: the plugin no longer serves the resource.
        """
        changed = self._devices.on_disconnected(resource, number, now)
        if changed is not None:
            self._on_changed(now)
        return changed

    def due(self, now: float) -> None:
        """Remove plugins that have been gone for too long."""
        if self._devices.expire(now):
            self._on_changed(now)

    def _on_changed(self, now: float) -> None:
        self.update_ledger()
        self._out.effects.append(DevicesChanged(self._devices.registered_resources()))
        if (at_s := self._devices.next_expiry_s) is not None:
            self._out.effects.append(SetTimer(at_s, TIMER, NODE_KEY))

    def update_ledger(self) -> None:
        """Set the ledger's allocatable devices to those that are free or allocated already."""
        for resource in self.capacity():
            self._ledger.allocatable[resource] = self._devices.free(resource)
            self._ledger.used.setdefault(resource, 0)

    def capacity(self) -> Mapping[str, tuple[int, int]]:
        """Return (capacity, allocatable) of every resource with a plugin, as the Node shows it."""
        return self._devices.capacity()

    def pod_added(self, worker: Pod) -> bool:
        """Set the health of the devices of a pod's containers; return whether that changed the pod's status."""
        worker.pre_start = frozenset(
            share.container for share in worker.allocation.devices if self._devices.wants_pre_start(share.resource)
        )
        if not self._shows_health:
            return False
        health: dict[str, list[Document]] = {}
        for share in worker.allocation.devices:
            known = ((each, self._devices.health(share.resource, each)) for each in sorted(share.ids))
            shown = [
                {"resourceID": each, "health": "Healthy" if is_healthy else "Unhealthy"} for each, is_healthy in known
            ]
            health.setdefault(share.container, []).append({"name": share.resource, "resources": shown})
        changed = health != worker.device_health
        worker.device_health = health
        return changed

    def show_health(self, now: float) -> bool:
        """Show the present health of devices in the status of every pod; return whether any status changed."""
        has_changed = False
        for key, worker in self._table.pods.items():
            if worker.allocation.devices and worker.state != PodState.TERMINATED and self.pod_added(worker):
                self._statuses.status_changed(key, now)
                has_changed = True
        return has_changed

    def readmission_rejection(self, worker: Pod) -> Rejection | None:
        """Return why a pod of a former kubelet cannot go on: a container has to start again without its devices.

        Running containers keep their devices, whatever became of them (k/k #109595).
        """
        waiting = {c.name for c in worker.containers if not c.is_running and c.may_start}
        for share in worker.allocation.devices:
            if share.container in waiting and self._devices.is_plugged(share.resource):
                problem = self._devices.problem(share.resource, share.ids)
                if problem:
                    return devices_unexpected(problem)
        return None

    def _pre_start(self, worker: Pod, effect: PrepareDevices, now: float) -> None:
        """A container is about to start: ask the plugins that want to know."""
        calls = [
            PreStart(share.resource, share.ids)
            for share in worker.allocation.devices
            if share.container == effect.container and self._devices.wants_pre_start(share.resource)
        ]
        self._starting[self.admission.send(calls[0])] = (worker.key, effect.container, calls[1:])

    def on_answer(self, number: int, answer: Answer, now: float) -> bool:
        """Take an answer; return whether it answers PreStartContainer."""
        asked = self._starting.pop(number, None)
        if asked is None:
            return False
        key, container, calls = asked
        problem = ""
        if isinstance(answer, Failed):
            problem = f"device plugin PreStartContainer rpc failed with err: {answer.text}"
        elif calls:
            self._starting[self.admission.send(calls[0])] = (key, container, calls[1:])
            return True
        if (worker := self._table.pods.get(key)) is not None:
            self._table.perform(worker, worker.devices_prepared(container, problem, now), now)
        return True


def pod_resources(
    devices: DeviceManager, pods: Iterable[tuple[KubeletPod, tuple[Share, ...], Mapping[str, list[Document]]]]
) -> Document:
    """Return the pods that have devices, by container, and all devices that can be allocated.

    `pods`: each pod with its shares of plugins' devices, and by container its devices from claims.

    The document has the shape of the kubelet's pod resources API (v1). The plugins' answers for the devices are
    added, which upstream's API does not have. Source: upstream
    `staging/src/k8s.io/kubelet/pkg/apis/podresources/v1` (`ListPodResources`, `GetAllocatableResources`).
    """
    listed: list[Document] = []
    for pod, shares, claimed in pods:
        if not shares and not claimed:
            continue
        containers: dict[str, list[Document]] = {}
        for share in shares:
            numas = sorted({numa for device in share.ids for numa in devices.numa_of(share.resource, device)})
            entry: Document = {"resource_name": share.resource, "device_ids": list(share.ids), **_near(numas)}
            if share.given != NOTHING_GIVEN:
                entry["given"] = msgspec.to_builtins(share.given)
            containers.setdefault(share.container, []).append(entry)
        meta = pod.metadata
        named: list[Document] = [{"name": name, "devices": held} for name, held in containers.items()]
        for name, resources in claimed.items():
            known = next((each for each in named if each["name"] == name), None)
            if known is None:
                named.append(known := {"name": name, "devices": []})
            known["dynamic_resources"] = resources
        listed.append({"name": meta.name, "namespace": meta.namespace, "containers": named})
    listed.sort(key=lambda each: (each["namespace"], each["name"]))
    allocatable = [
        {"resource_name": resource, "device_ids": [device.id], **_near(device.numa)}
        for resource, device in devices.healthy()
    ]
    return {"pod_resources": listed, "allocatable_resources": {"devices": allocatable}}


def _near(numas: Iterable[int]) -> Document:
    nodes = [{"ID": numa} for numa in numas]
    return {"topology": {"nodes": nodes}} if nodes else {}
