"""What a kubelet has decided about its pods, on disk, and what becomes of it beside the runtime's own record. Pure.

Two things outlive a kubelet, and either can be lost without the other. The emulated runtime's record says what runs,
since when, and with which sizes, CPUs and devices. The checkpoint says what the kubelet allocated:
the size of a resize that is not carried out yet, and again the CPUs, memory and devices. Where the checkpoint is
silent about a pod that runs, what it runs with is what it was allocated (FM-K5); where the runtime is silent, nothing
of the pod runs any more. Source: kubelet 6; guarantees N2 to N4, FM-K5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from kubelet.managers.allocation import NO_ALLOCATION, Allocation
from kubelet.runtime.claim_record import HeldClaim
from kubelet.runtime.line_file import Lines, Reading, Where, newest
from kubelet.runtime.records import PodRecord, encode_record
from kubelet.runtime.resources import NO_RESOURCES, PodResources, is_same
from kubelet.view import WorkerKey


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
_DECODER = msgspec.json.Decoder(Checkpoint)


def read_checkpoints(lines: Iterable[bytes], nodes: frozenset[str]) -> Reading[Checkpoint]:
    """Return the newest of every pod, and what was of no use."""
    return newest(lines, nodes, _DECODER.decode)


def checkpoint_of(record: PodRecord) -> Checkpoint:
    """Return what the kubelet has decided about a pod."""
    return Checkpoint(
        record.node, record.uid, record.generation, record.allocation, record.allocated, record.claims, record.is_gone
    )


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return one line."""
    return _ENCODER.encode(checkpoint) + b"\n"


def lines_of(record: PodRecord) -> Lines:
    """Return all that is known of a pod, as it is kept."""
    return Lines(
        (record.node, record.key), encode_record(record), encode_checkpoint(checkpoint_of(record)), record.is_gone
    )


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
    for where, checkpoint in decided.items():
        if where not in runtime:
            found[where] = PodRecord(
                checkpoint.node,
                checkpoint.uid,
                checkpoint.generation,
                allocation=checkpoint.allocation,
                allocated=checkpoint.allocated,
                claims=checkpoint.claims,
            )
    return found, silent
