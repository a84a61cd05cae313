"""What outlives a kubelet: the emulated runtime's record of what runs, and the kubelet's checkpoint. Pure.

A container's whole course follows from its script, its start and the requests to stop it, so the runtime's record
needs little: since when what runs, with which sizes, CPUs and devices; the next kubelet re-adopts what it says (N4).
The checkpoint says what the kubelet allocated: the size of a resize that is not carried out yet, and again the CPUs,
memory and devices. Either can be lost without the other. Where the checkpoint is silent about a pod that runs, what it
runs with is what it was allocated (FM-K5); where the runtime is silent, nothing of the pod runs any more.
Source: kubelet 6; guarantees N2 to N4, FM-K5; dra-core 7.
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


class Checkpoint(msgspec.Struct, frozen=True, array_like=True):
    """One pod for one binding. `claims`: whose devices are, or may be, prepared for it. `is_gone` erases the rest."""

    node: str
    uid: str
    generation: int
    allocation: Allocation = NO_ALLOCATION
    allocated: PodResources = NO_RESOURCES
    claims: tuple[HeldClaim, ...] = ()
    is_gone: bool = False

    @property
    def key(self) -> WorkerKey:
        """Whose it is."""
        return WorkerKey(self.uid, self.generation)


_ENCODER = msgspec.json.Encoder()
R = TypeVar("R", PodRecord, Checkpoint)


def encode_record(record: PodRecord) -> bytes:
    """Return one line of the runtime's record: its sizes are those the runtime applied."""
    if record.actual is not None:
        record = msgspec.structs.replace(record, allocated=record.actual, actual=None)
    return _ENCODER.encode(record) + b"\n"


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return one line."""
    return _ENCODER.encode(checkpoint) + b"\n"


def checkpoint_of(record: PodRecord) -> Checkpoint:
    """Return what the kubelet has decided about a pod."""
    return Checkpoint(
        record.node, record.uid, record.generation, record.allocation, record.allocated, record.claims, record.is_gone
    )


def lines_of(record: PodRecord) -> Lines:
    """Return all that is known of a pod, as it is kept."""
    return Lines(
        (record.node, record.key), encode_record(record), encode_checkpoint(checkpoint_of(record)), record.is_gone
    )


class Reading(msgspec.Struct, Generic[R], frozen=True):
    """`torn`: how many lines could not be read; `elsewhere`: how many are about which node that does not live here."""

    found: dict[Where, R]
    torn: int
    elsewhere: dict[str, int]


def newest(kind: type[R], lines: Iterable[bytes], nodes: frozenset[str]) -> Reading[R]:
    """Return what is newest of every pod of these nodes; other lines are left out and counted (FM-K5)."""
    decode = msgspec.json.Decoder(kind).decode
    found: dict[Where, R] = {}
    torn, elsewhere = 0, dict[str, int]()
    for line in lines:
        if not line:
            continue
        try:
            said = decode(line)
        except UNREADABLE:
            torn += 1
            continue
        if said.node not in nodes:
            elsewhere[said.node] = elsewhere.get(said.node, 0) + 1
            continue
        found.pop((said.node, said.key), None)
        if not said.is_gone:
            found[said.node, said.key] = said
    return Reading(found, torn, elsewhere)


def joined(
    runtime: Mapping[Where, PodRecord], decided: Mapping[Where, Checkpoint]
) -> tuple[dict[Where, PodRecord], list[Where]]:
    """Return all that is known of every pod, and the pods that run and that the checkpoint does not know."""
    found: dict[Where, PodRecord] = {}
    silent: list[Where] = []
    for where, record in runtime.items():
        applied = record.actual or record.allocated
        checkpoint = decided.get(where)
        if checkpoint is None:
            found[where] = msgspec.structs.replace(record, allocated=applied, actual=None)
            silent.append(where)
            continue
        found[where] = msgspec.structs.replace(
            record,
            allocation=checkpoint.allocation,
            allocated=checkpoint.allocated,
            actual=None if is_same(applied, checkpoint.allocated) else applied,
            claims=checkpoint.claims,
        )
    for where, own in decided.items():
        if where not in runtime:
            found[where] = PodRecord(
                own.node, own.uid, own.generation, allocation=own.allocation, allocated=own.allocated, claims=own.claims
            )
    return found, silent
