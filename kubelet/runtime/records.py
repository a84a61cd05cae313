"""The emulated runtime's record: which containers were started when, and how they ended.

A container's whole course follows from its script, its start and the requests to stop it, so the record
needs little: it survives a killed kubelet, and the next one re-adopts what it says (N4). Pure; the shell writes the
bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kubelet.managers.allocation import NO_ALLOCATION, Allocation
from kubelet.runtime.claim_record import HeldClaim
from kubelet.runtime.line_file import Reading, newest
from kubelet.runtime.resources import NO_RESOURCES, PodResources
from kubelet.view import WorkerKey

LOST_EXIT = 255
"""Of a container that ended with its machine; the runtime cannot say more."""


class ContainerRecord(msgspec.Struct, array_like=True):
    """`started_s` and `finished_s` are monotonic seconds of the host; `exit_code` -1: not ended."""

    name: str
    started_s: float
    restarts: int = 0
    exit_code: int = -1
    finished_s: float = 0.0


class PodRecord(msgspec.Struct, array_like=True):
    """What is known of one pod for one binding, whatever becomes of the kubelet. `is_gone` erases what was recorded.

    `allocation` is what the pod has to itself, `allocated` the size it was given; `actual`, what the runtime last
    applied, is None as long as that is the same (KEP-1287). `claims`: whose devices are, or may be, prepared for the
    pod (KEP-4381). The runtime's own record has the sizes it applied; allocations are the checkpoint's.
    """

    node: str
    uid: str
    generation: int
    namespace: str = ""
    name: str = ""
    pod_ip: str = ""
    start_s: float = 0.0
    containers: list[ContainerRecord] = []
    allocation: Allocation = NO_ALLOCATION
    allocated: PodResources = NO_RESOURCES
    actual: PodResources | None = None
    is_finished: bool = False
    is_gone: bool = False
    claims: tuple[HeldClaim, ...] = ()

    @property
    def key(self) -> WorkerKey:
        """Whose record this is."""
        return WorkerKey(self.uid, self.generation)


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(PodRecord)


def encode_record(record: PodRecord) -> bytes:
    """Return one line of the runtime's record: its sizes are those the runtime applied."""
    if record.actual is not None:
        record = msgspec.structs.replace(record, allocated=record.actual, actual=None)
    return _ENCODER.encode(record) + b"\n"


def replay(lines: Iterable[bytes], nodes: frozenset[str]) -> Reading[PodRecord]:
    """Return the newest record of every pod, and what was of no use."""
    return newest(lines, nodes, _DECODER.decode)
