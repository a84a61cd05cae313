"""The machine's boot in which a kubelet host lives, and the effect of a boot on the pods that ran. Pure.

The machine's boot id is in a file that only a boot changes; beside the runtime's record lies the boot id
under which it was made. If the two differ the machine was booted: nothing that the record calls running
runs any more. Source: kubelet 6; guarantees N4, FM-K3.
"""

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from kubelet.runtime.records import LOST_EXIT, ContainerRecord, PodRecord
from kubelet.view import WorkerKey
from services.api.seams import Disk, Random

BOOT_FILE = "machine.boot"
"""The file with the machine's boot id; it is missing before the machine's first kubelet."""
SEEN_FILE = "runtime.boot"
"""The file with the boot id to which the runtime's record belongs."""


class Boot(msgspec.Struct, frozen=True):
    """The boot of a machine.

    `is_new`: the machine was booted since the runtime's record was made. `missing`: files to write, in order.
    """

    id: str
    is_new: bool
    missing: tuple[str, ...]


def look(disk: Disk, random: Random, records: Sequence[PodRecord], now: float) -> Boot:
    """Return the present boot. Records from the future also mean a new boot: the machine's clock began anew."""
    known_boot, seen = _text(disk, BOOT_FILE), _text(disk, SEEN_FILE)
    boot_id = known_boot or f"{random.getrandbits(128):032x}"
    is_new = (bool(seen) and seen != boot_id) or any(record.start_s > now + 1.0 for record in records)
    return Boot(
        boot_id, is_new, tuple(name for name, held in ((BOOT_FILE, known_boot), (SEEN_FILE, seen)) if held != boot_id)
    )


def _text(disk: Disk, name: str) -> str:
    return (disk.read(name) or b"").decode("ascii", "replace").strip()


def boot_id_of(node: str, boot_id: str) -> str:
    """Return the boot id of one emulated node of a machine, in Linux's form."""
    text = hashlib.sha256(f"{boot_id}/{node}".encode()).hexdigest()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"


def after_boot(
    records: Mapping[tuple[str, WorkerKey], PodRecord], now: float
) -> dict[tuple[str, WorkerKey], PodRecord]:
    """Return the runtime's records after a boot: the same containers, all of them ended."""
    return {where: without_sandbox(record, now) for where, record in records.items()}


def without_sandbox(record: PodRecord, now: float) -> PodRecord:
    """Return the runtime's record of a pod whose sandbox is gone: the same containers, all of them ended."""
    return msgspec.structs.replace(
        record, start_s=min(record.start_s, now), containers=[_as_lost(each, now) for each in record.containers]
    )


def _as_lost(container: ContainerRecord, now: float) -> ContainerRecord:
    if container.exit_code >= 0:
        return container
    started_s = min(container.started_s, now)
    return msgspec.structs.replace(container, started_s=started_s, exit_code=LOST_EXIT, finished_s=now)
