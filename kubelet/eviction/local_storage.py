"""Limits of local storage that only the node enforces: of an emptyDir, of a pod, of a container. Pure.

They are checked in this order, whether or not the node is short of a resource; a pod over a limit is
evicted. Source: upstream `pkg/kubelet/eviction/eviction_manager.go` (localStorageEviction),
`pkg/kubelet/eviction/helpers.go`.
"""

from collections.abc import Mapping

from kubelet.view import KubeletPod
from services.api.podresources import limits_in_use
from services.api.quantity import canonical, format_amount, units

STORAGE = "ephemeral-storage"
EMPTY_DIR_LIMIT, POD_LIMIT, CONTAINER_LIMIT = "emptydirfs.limit", "ephemeralpodfs.limit", "ephemeralcontainerfs.limit"


def excess(pod: KubeletPod, volumes: Mapping[str, int], containers: Mapping[str, int]) -> tuple[str, str] | None:
    """Return the signal and the message of the first limit that the pod exceeds; None: it exceeds no limit.

    `volumes`: bytes in each emptyDir; `containers`: bytes that each running container has written itself.
    """
    for volume in pod.spec.volumes:
        limit = volume.empty_dir.size_limit if volume.empty_dir is not None else None
        if limit is not None and 0 < _bytes(limit) < volumes.get(volume.name, 0):
            text = canonical(str(limit))
            return EMPTY_DIR_LIMIT, f'Usage of EmptyDir volume "{volume.name}" exceeds the limit "{text}". '
    total = limits_in_use(pod).get(STORAGE)
    if total is not None and sum(volumes.values()) + sum(containers.values()) > total:
        text = _spelt(pod, total)
        return POD_LIMIT, f"Pod ephemeral local storage usage exceeds the total limit of containers {text}. "
    for container in pod.spec.containers:
        own = container.resources.limits.get(STORAGE, "0")
        if 0 < _bytes(own) < containers.get(container.name, 0):
            text = canonical(own)
            return CONTAINER_LIMIT, f'Container {container.name} exceeded its local ephemeral storage limit "{text}". '
    return None


def _bytes(limit: str | float) -> int:
    try:
        return units(str(limit))
    except ValueError:
        return 0


def _spelt(pod: KubeletPod, total: int) -> str:
    """Return a sum as upstream's quantities spell it: in the form of the first one."""
    first = next((c.resources.limits[STORAGE] for c in pod.spec.containers if STORAGE in c.resources.limits), "")
    return format_amount(STORAGE, total) if first.endswith("i") or not first else canonical(str(total))
