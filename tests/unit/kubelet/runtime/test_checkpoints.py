"""What outlives a kubelet lies in two files, either of which may be lost; and starting a pod waits for the disk once."""

import asyncio

import pytest

from kubelet.agent.journal import Journal
from kubelet.managers.allocation import Allocation
from kubelet.runtime.claims import HeldClaim
from kubelet.runtime.records import ContainerRecord, PodRecord, lines_of
from kubelet.runtime.resources import PodResources
from services.api.kinds.pod import ResourceRequirements
from services.runtime.real import MemoryDisk

HERE = frozenset({"n1"})


def of(cpu):
    return PodResources({"main": ResourceRequirements(requests={"cpu": cpu})})


RUNNING = PodRecord(
    "n1", "u1", 1, "default", "web", containers=[ContainerRecord("main", 5.0)], allocation=Allocation(cpus=(2, 3)),
    allocated=of("2"), actual=of("1"), claims=(HeldClaim("c", "default", "gpu", {"d": ("p/0",)}),),
)  # fmt: skip


class CountingDisk(MemoryDisk):
    def __init__(self):
        super().__init__()
        self.appends = []

    async def append_all(self, parts):
        self.appends.append(sorted(parts))
        await super().append_all(parts)

    def damage(self, name, damaged):
        self._files[name] = damaged(self._files[name])

    def lose(self, prefix):
        self._files = {name: data for name, data in self._files.items() if not name.startswith(prefix)}


@pytest.fixture
def disk():
    return CountingDisk()


@pytest.fixture
def wrote(disk):
    """Have a journal write these records one after the other, and return what it then says of itself."""

    def write(*records):
        async def work():
            journal = Journal(disk, HERE)
            journal.load()
            writing = asyncio.create_task(journal.run())
            for record in records:
                journal.put(lines_of(record))
                await journal.flush()
            writing.cancel()
            return journal

        return asyncio.run(work())

    return write


def read(disk):
    journal = Journal(disk, HERE)
    return list(journal.load().values()), journal


def test_what_is_allocated_and_what_runs_come_back_as_one(wrote, disk):
    wrote(RUNNING)

    found, journal = read(disk)

    assert found == [RUNNING]
    assert not journal.silent


def test_guarantees_fm_k5_without_a_checkpoint_what_runs_keeps_what_it_runs_with(wrote, disk):
    wrote(RUNNING)
    disk.lose("checkpoint")

    (found,), journal = read(disk)

    assert found.containers == RUNNING.containers
    assert (found.allocation, found.claims) == (RUNNING.allocation, RUNNING.claims)
    assert (found.allocated, found.actual) == (of("1"), None)  # what the runtime recorded is what is known
    assert journal.silent == {"n1": 1}


def test_guarantees_fm_k5_what_was_taken_from_the_runtime_is_in_the_checkpoint_again(wrote, disk):
    wrote(RUNNING)
    disk.lose("checkpoint")

    wrote()
    wrote(RUNNING.__class__("n1", "u2", 1))
    disk.lose("runtime")

    assert [record.uid for record in read(disk)[0]] == ["u1", "u2"]


def test_without_the_runtimes_record_allocations_are_kept_and_nothing_runs(wrote, disk):
    wrote(RUNNING)
    disk.lose("runtime")

    (found,), journal = read(disk)

    assert (found.containers, found.allocation, found.allocated) == ([], RUNNING.allocation, of("2"))
    assert not journal.silent


def test_guarantees_fm_k5_another_machines_checkpoint_is_refused_and_half_a_line_left_out(wrote, disk):
    wrote(RUNNING, PodRecord("n1", "u2", 1, containers=[ContainerRecord("main", 6.0)]))
    disk.damage("checkpoint-0.log", lambda data: data.replace(b'"n1"', b'"n7"', 1)[:-5])

    found, journal = read(disk)

    assert [record.uid for record in found] == ["u1", "u2"]
    assert (journal.silent, journal.useless_lines) == ({"n1": 2}, 2)


def test_a_pod_that_starts_waits_for_the_disk_once_and_only_decisions_are_checkpointed(wrote, disk):
    ended = PodRecord(*(getattr(RUNNING, name) for name in RUNNING.__struct_fields__))
    ended.is_finished = True

    journal = wrote(RUNNING, ended)

    assert [names for names in disk.appends if names] == [["checkpoint-0.log", "runtime-0.log"], ["runtime-0.log"]]
    assert journal.syncs == 3


def test_nothing_is_kept_of_a_pod_that_is_gone(wrote, disk):
    journal = wrote(RUNNING, PodRecord("n1", "u1", 1, is_gone=True))

    assert journal.of("n1") == {}
    assert read(disk)[0] == []
