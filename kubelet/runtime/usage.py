"""What emulated containers use of their node over time, read from annotations. Pure.

The annotation `keplab.dev/usage` speaks for every container of a pod, `keplab.dev/usage.<container>` for one. The form
of its curves is that of `services/api/metrics/usage`; ages are counted from the container's start.

Resources are cpu, memory, ephemeral-storage, inodes, pids, and `emptydir/NAME`: what a container has written into a
volume of its pod, which stays when it ends. A node's own use (`usage` of its definition, ages counted
from the kubelet's start) has imagefs too. A container that uses more memory than its limit is ended (OOMKilled); what
it uses of cpu is seen in metrics only.
"""

from kubelet.view import KubeletPod
from services.api.metrics.usage import ANNOTATION, KWOK_ANNOTATION, RESOURCES, Curves, curves_in, text_for, value_at

NODE_RESOURCES = (*(name for name in RESOURCES if name != "cpu"), "imagefs")


def describes_usage(pod: KubeletPod) -> bool:
    """Whether the pod has curves."""
    return any(name.startswith((ANNOTATION, KWOK_ANNOTATION)) for name in pod.metadata.annotations)


def curves(pod: KubeletPod, container: str) -> Curves:
    """Return the curves of one container; what cannot be read is not used."""
    return curves_in(text_for(pod.metadata.annotations, container))


def used(pod: KubeletPod, container: str, age_s: float) -> dict[str, int]:
    """Return what a container that runs for so long uses, by resource."""
    return {name: value_at(points, age_s) for name, points in curves(pod, container).items()}
