"""The use of node resources by emulated containers over time, read from annotations. Pure.

The annotation `keplab.dev/usage` applies to every container of a pod, `keplab.dev/usage.<container>` to
one. Its curves have the form of `services/api/metrics/usage`; ages are counted from the container's start.

Resources are cpu, memory, ephemeral-storage, inodes, pids, and `emptydir/NAME`: bytes that a container has
written into a volume of its pod, which stay when it ends. A node's own use (`usage` of its definition, ages
counted from the kubelet's start) has imagefs too. A container that uses more memory than its limit is ended
(OOMKilled); its use of cpu is seen in metrics only.
"""

from kubelet.view import KubeletPod
from services.api.metrics.usage import ANNOTATION, KWOK_ANNOTATION, RESOURCES, Curves, curves_in, text_for, value_at

NODE_RESOURCES = (*(name for name in RESOURCES if name != "cpu"), "imagefs")


def describes_usage(pod: KubeletPod) -> bool:
    """Whether the pod has curves."""
    return any(name.startswith((ANNOTATION, KWOK_ANNOTATION)) for name in pod.metadata.annotations)


def curves(pod: KubeletPod, container: str) -> Curves:
    """Return the curves of one container; an unreadable annotation is ignored."""
    return curves_in(text_for(pod.metadata.annotations, container))


def used_amounts(pod: KubeletPod, container: str, age_s: float) -> dict[str, int]:
    """Return the use of a container of this age, by resource."""
    return {name: value_at(points, age_s) for name, points in curves(pod, container).items()}
