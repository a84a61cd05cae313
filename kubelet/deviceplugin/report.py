"""Who has which devices on a node, in the shape of the kubelet's pod resources API (v1). Pure.

What plugins gave with the devices stands beside them, which upstream's API does not have. Source: upstream
`staging/src/k8s.io/kubelet/pkg/apis/podresources/v1` (`ListPodResources`, `GetAllocatableResources`).
"""

from collections.abc import Iterable

import msgspec

from kubelet.managers.device_calls import NOTHING_GIVEN, Share
from kubelet.managers.device_manager import DeviceManager
from kubelet.view import KubeletPod
from services.api.meta import Document


def pod_resources(devices: DeviceManager, pods: Iterable[tuple[KubeletPod, tuple[Share, ...]]]) -> Document:
    """Return the pods that have devices, by container, and all devices that can be given away."""
    listed: list[Document] = []
    for pod, shares in pods:
        if not shares:
            continue
        containers: dict[str, list[Document]] = {}
        for share in shares:
            containers.setdefault(share.container, []).append(_device(devices, share))
        meta = pod.metadata
        named = [{"name": name, "devices": held} for name, held in containers.items()]
        listed.append({"name": meta.name, "namespace": meta.namespace, "containers": named})
    return {
        "pod_resources": sorted(listed, key=lambda each: (each["namespace"], each["name"])),
        "allocatable_resources": {
            "devices": [
                {"resource_name": resource, "device_ids": [device.id], **_near(device.numa)}
                for resource, device in devices.healthy()
            ]
        },
    }


def _device(devices: DeviceManager, share: Share) -> Document:
    numas = sorted({numa for device in share.ids for numa in devices.numa_of(share.resource, device)})
    made: Document = {"resource_name": share.resource, "device_ids": list(share.ids), **_near(numas)}
    if share.given != NOTHING_GIVEN:
        made["given"] = msgspec.to_builtins(share.given)
    return made


def _near(numas: Iterable[int]) -> Document:
    nodes = [{"ID": numa} for numa in numas]
    return {"topology": {"nodes": nodes}} if nodes else {}
