"""The health of claims' devices, as their drivers report it, in the status of the containers that use them. Pure.

Source: KEP-4680; dra-core 7; upstream `pkg/kubelet/cm/dra` (healthInfoCache,
UpdateAllocatedResourcesStatus).
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from kubelet.dra.calls import UNKNOWN, DeviceHealth
from kubelet.pod.pod import Pod
from kubelet.pod.states import PodState
from kubelet.pod.table import PodTable
from kubelet.runtime.claims import PreparedDevice
from kubelet.status.manager import StatusManager
from services.api.meta import Document
from services.dra.pod_claims import claim_name

TIMEOUT_S: Final = 30.0
"""Seconds that a report without a timeout of its own holds."""
MESSAGE_MAX: Final = 1024


class _DeviceHealth(msgspec.Struct):
    health: str
    message: str
    until_s: float


class DriverHealth:
    """The known health of one node's devices."""

    def __init__(self, table: PodTable, statuses: StatusManager) -> None:
        self._table, self._statuses = table, statuses
        self._known: dict[tuple[str, str, str], _DeviceHealth] = {}

    def on_report(self, driver: str, devices: Iterable[DeviceHealth], now: float) -> None:
        """Replace the health of a driver's devices; devices that are not in the report are no longer known."""
        held = {key: known for key, known in self._known.items() if key[0] != driver}
        for device in devices:
            message = (
                device.message if len(device.message) <= MESSAGE_MAX else device.message[: MESSAGE_MAX - 3] + "..."
            )
            timeout_s = device.timeout_s if device.timeout_s > 0 else TIMEOUT_S
            held[driver, device.pool, device.device] = _DeviceHealth(device.health, message, now + timeout_s)
        self._known = held
        self._show(now)

    def clear(self, driver: str, now: float) -> None:
        """Forget the health of the driver's devices: it reports no more."""
        self.on_report(driver, (), now)

    def pod_started(self, pod: Pod, now: float) -> None:
        """Set the health of a pod's devices, once its claims are prepared or recovered."""
        self._take(pod, now)

    def _show(self, now: float) -> None:
        for key, pod in self._table.pods.items():
            if pod.claims and pod.state != PodState.TERMINATED and self._take(pod, now):
                self._statuses.status_changed(key, now)

    def _take(self, pod: Pod, now: float) -> bool:
        """Let a pod's containers know how their devices are; return whether that changed its status."""
        health = {
            container.name: shown
            for container in pod.pod.spec.containers
            if (shown := self._of(pod, container.resources.claims, now))
        }
        changed = health != pod.claim_health
        pod.claim_health = health
        return changed

    def _of(self, pod: Pod, uses: Sequence[object], now: float) -> list[Document]:
        names = {each.name: claim_name(pod.pod, each) for each in pod.pod.spec.resource_claims}
        held = {claim.name: claim for claim in pod.claims}
        statuses: list[Document] = []
        for use in uses:
            name, request = str(getattr(use, "name", "")), str(getattr(use, "request", ""))
            claim = held.get(names.get(name) or "")
            if claim is None:
                continue
            base = request.partition("/")[0]
            shown: dict[str, Document] = {}
            for device in claim.prepared:
                if device.is_for(base):
                    resource = self._resource_health(device, now)
                    shown.setdefault(str(resource["resourceID"]), resource)
            if shown:
                title = f"claim:{name}/{request}" if request else f"claim:{name}"
                statuses.append({"name": title, "resources": list(shown.values())})
        return statuses

    def _resource_health(self, device: PreparedDevice, now: float) -> Document:
        known = self._known.get((device.driver, device.pool, device.device))
        is_fresh = known is not None and known.until_s > now
        identity = device.cdi[0] if device.cdi else f"{device.driver}/{device.pool}/{device.device}"
        resource: Document = {"resourceID": identity, "health": known.health if known and is_fresh else UNKNOWN}
        if known is not None and is_fresh and known.message:
            resource["message"] = known.message
        return resource
