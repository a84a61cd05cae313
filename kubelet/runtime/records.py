"""The records that outlive a kubelet: the emulated runtime's of what runs, and the kubelet's checkpoint. Pure.

A container's whole course follows from its script, its start and the requests to stop it, so the runtime's
record needs little: what runs, since when, with which sizes, CPUs and devices; the next kubelet re-adopts
it (N4). The checkpoint has the kubelet's allocations: the size of a resize that is not applied yet, and
again the CPUs, memory and devices. Either can be lost without the other. If a running pod is missing in the
checkpoint, its running size counts as its allocation (FM-K5); if a pod is missing in the runtime's record,
nothing of it runs any more. Source: kubelet 6; guarantees N2 to N4, FM-K5; dra-core 7.
"""

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

from kubelet.managers.allocation import NO_ALLOCATION, Allocation
from kubelet.runtime.claims import HeldClaim
from kubelet.runtime.line_file import Lines, Where
from kubelet.runtime.resources import NO_RESOURCES, PodResources, is_same
from kubelet.view import WorkerKey
from services.api.errors import UNREADABLE

LOST_EXIT = 255
"""Exit code of a container that ended with its machine; the runtime cannot say more."""


class ContainerRecord(msgspec.Struct, array_like=True):
    """The runtime's record of one container.

    `started_s` and `finished_s` are monotonic seconds of the host; `exit_code` -1: not ended.
    """

    name: str
    started_s: float
    restarts: int = 0
    exit_code: int = -1
    finished_s: float = 0.0


class PodRecord(msgspec.Struct, array_like=True):
    """The record of one pod for one binding, whatever becomes of the kubelet. `is_gone` erases it.

    `allocation` has the resources that are the pod's alone, `allocated` its size; `actual`, the size that the
    runtime last applied, is None as long as both are the same (KEP-1287). `claims`: claims whose devices are,
    or may be, prepared for the pod (KEP-4381). The runtime's own record has the sizes it applied; allocations
    are the checkpoint's.
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
        """The pod and binding of this record."""
        return WorkerKey(self.uid, self.generation)


class Checkpoint(msgspec.Struct, frozen=True, array_like=True):
    """The checkpoint of one pod for one binding. `is_gone` erases it.

    `claims`: claims whose devices are, or may be, prepared for the pod.
    """

    node: str
    uid: str
    generation: int
    allocation: Allocation = NO_ALLOCATION
    allocated: PodResources = NO_RESOURCES
    claims: tuple[HeldClaim, ...] = ()
    is_gone: bool = False

    @property
    def key(self) -> WorkerKey:
        """The pod and binding of this checkpoint."""
        return WorkerKey(self.uid, self.generation)


_ENCODER = msgspec.json.Encoder()
R = TypeVar("R", PodRecord, Checkpoint)


def encode_record(record: PodRecord) -> bytes:
    """Return one line of the runtime's record, with the sizes that the runtime applied."""
    if record.actual is not None:
        record = msgspec.structs.replace(record, allocated=record.actual, actual=None)
    return _ENCODER.encode(record) + b"\n"


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return one line of the checkpoint."""
    return _ENCODER.encode(checkpoint) + b"\n"


def checkpoint_of(record: PodRecord) -> Checkpoint:
    """Return the kubelet's decisions about a pod."""
    return Checkpoint(
        record.node, record.uid, record.generation, record.allocation, record.allocated, record.claims, record.is_gone
    )


def lines_of(record: PodRecord) -> Lines:
    """Return both lines of a pod."""
    return Lines(
        (record.node, record.key), encode_record(record), encode_checkpoint(checkpoint_of(record)), record.is_gone
    )


class Reading(msgspec.Struct, Generic[R], frozen=True):
    """The result of reading lines.

    `torn`: the number of unreadable lines; `elsewhere`: the number of lines by node that does not run here.
    """

    found: dict[Where, R]
    torn: int
    elsewhere: dict[str, int]


def newest(kind: type[R], lines: Iterable[bytes], nodes: frozenset[str]) -> Reading[R]:
    """Return the newest line of every pod of these nodes; other lines are left out and counted (FM-K5)."""
    decode = msgspec.json.Decoder(kind).decode
    records: dict[Where, R] = {}
    torn, elsewhere = 0, dict[str, int]()
    for line in lines:
        if not line:
            continue
        try:
            record = decode(line)
        except UNREADABLE:
            torn += 1
            continue
        if record.node not in nodes:
            elsewhere[record.node] = elsewhere.get(record.node, 0) + 1
            continue
        records.pop((record.node, record.key), None)
        if not record.is_gone:
            records[record.node, record.key] = record
    return Reading(records, torn, elsewhere)


def join_records(
    runtime: Mapping[Where, PodRecord], decided: Mapping[Where, Checkpoint]
) -> tuple[dict[Where, PodRecord], list[Where]]:
    """Return the joined record of every pod, and the running pods that the checkpoint does not know."""
    records: dict[Where, PodRecord] = {}
    silent: list[Where] = []
    for where, record in runtime.items():
        applied = record.actual or record.allocated
        checkpoint = decided.get(where)
        if checkpoint is None:
            records[where] = msgspec.structs.replace(record, allocated=applied, actual=None)
            silent.append(where)
            continue
        records[where] = msgspec.structs.replace(
            record,
            allocation=checkpoint.allocation,
            allocated=checkpoint.allocated,
            actual=None if is_same(applied, checkpoint.allocated) else applied,
            claims=checkpoint.claims,
        )
    for where, own in decided.items():
        if where not in runtime:
            records[where] = PodRecord(
                own.node, own.uid, own.generation, allocation=own.allocation, allocated=own.allocated, claims=own.claims
            )
    return records, silent
