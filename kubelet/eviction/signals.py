"""The eviction signals of one node: the resources left, and the thresholds that must not be crossed. Pure.

Source: kubelet 7; upstream `pkg/kubelet/eviction/api`.
"""

from collections.abc import Mapping

import msgspec

from kubelet.managers.node_machine import Definition
from services.api.quantity import amount


class Signal(msgspec.Struct, frozen=True):
    """One eviction signal.

    `usage`: the resource of a usage curve; `resource`: its name in messages; `condition`: of the Node.
    """

    name: str
    usage: str
    resource: str
    condition: str
    is_of_pods: bool = True
    """Whether the eviction of pods frees any of the resource."""


SIGNALS = {
    s.name: s
    for s in (
        Signal("memory.available", "memory", "memory", "MemoryPressure"),
        Signal("nodefs.available", "ephemeral-storage", "ephemeral-storage", "DiskPressure"),
        Signal("nodefs.inodesFree", "inodes", "inodes", "DiskPressure"),
        Signal("imagefs.available", "imagefs", "ephemeral-storage", "DiskPressure", is_of_pods=False),
        Signal("pid.available", "pids", "pids", "PIDPressure"),
    )
}
DEFAULT_HARD = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
}
PIDS, BYTES_PER_INODE = 32768, 16384


class Eviction(Definition, frozen=True):
    """The eviction settings of a node (KubeletConfiguration's names, seconds instead of durations).

    Thresholds are quantities or shares, `{"memory.available": "100Mi"}`; each soft one has a grace period.
    `hard` None: Kubernetes' own thresholds, which are then not withheld from the pods
    (`NodeDefinition.allocatable`).
    """

    hard: dict[str, str] | None = None
    soft: dict[str, str] = {}
    soft_grace_period: dict[str, float] = {}
    max_pod_grace_period: float = 0.0
    pressure_transition_period: float = 300.0


class Threshold(msgspec.Struct, frozen=True):
    """A threshold: it is crossed when less than `least` of a signal is left.

    `grace_s` None: eviction at once, else after so many seconds (soft).
    """

    signal: Signal
    least: int
    text: str
    grace_s: float | None = None


def capacities(memory: str, ephemeral_storage: str) -> dict[str, int]:
    """Return the node's capacity of each resource of a usage curve.

    The disk of images is as large as the node's own.
    """
    disk = amount("ephemeral-storage", ephemeral_storage)
    return {
        "memory": amount("memory", memory),
        "ephemeral-storage": disk,
        "imagefs": disk,
        "inodes": disk // BYTES_PER_INODE,
        "pids": PIDS,
    }


def thresholds(chosen: Eviction, capacity: Mapping[str, int]) -> tuple[Threshold, ...]:
    """Return the thresholds, memory first. Raises: ValueError naming a signal or a quantity."""
    hard = DEFAULT_HARD if chosen.hard is None else chosen.hard
    soft, soft_grace_s = chosen.soft, chosen.soft_grace_period
    threshold_list: list[Threshold] = []
    for given, is_soft in ((hard, False), (soft, True)):
        for name in given:
            if name not in SIGNALS:
                raise ValueError(f"eviction signal {name!r}: want one of {', '.join(SIGNALS)}")
            if is_soft and name not in soft_grace_s:
                raise ValueError(f"soft eviction threshold {name}: want a grace period too")
    for signal in SIGNALS.values():
        size = capacity[signal.usage]
        if signal.name in hard:
            threshold_list.append(_threshold(signal, hard[signal.name], size, None))
        if signal.name in soft:
            threshold_list.append(_threshold(signal, soft[signal.name], size, soft_grace_s[signal.name]))
    return tuple(threshold_list)


def _threshold(signal: Signal, text: str, size: int, grace_s: float | None) -> Threshold:
    if not text.endswith("%"):
        return Threshold(signal, amount(signal.resource, text), text, grace_s)
    try:
        least = int(size * float(text[:-1]) / 100)
    except ValueError:
        raise ValueError(f"eviction threshold {signal.name}<{text}: want a quantity or a share such as 10%") from None
    return Threshold(signal, least, str(least), grace_s)
