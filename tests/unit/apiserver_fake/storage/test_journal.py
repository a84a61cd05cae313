"""What the log over the disk seam keeps, cuts and refuses."""

import asyncio
import errno

import pytest

from apiserver_fake.storage.journal import DiskJournal, JournalError
from apiserver_fake.storage.records import BaseObject, Entry
from services.runtime.real import MemoryDisk

SECRET = b"ab" * 32


def an_entry(rv, name="a", previous_rv=0, kind="ADDED", **request):
    return Entry(rv, kind, rv, previous_rv, "configmaps", "default", name, "u", b'{"rv":%d}' % rv, **request)


def reopened(disk):
    return asyncio.run(DiskJournal(disk).open(b"other"))


def written(disk, *batches, journal=None):
    async def write():
        into = journal or DiskJournal(disk)
        await into.open(SECRET)
        for batch in batches:
            await into.append(batch, 0)

    asyncio.run(write())


def test_a_disk_journal_gives_back_what_was_appended_and_its_secret():
    disk = MemoryDisk()
    batches = [[an_entry(1, request_id="r", identity="i", code=201)], [an_entry(2, "b"), an_entry(3, "c")]]

    written(disk, *batches)

    found = reopened(disk)
    assert found.entries == [entry for batch in batches for entry in batch]
    assert found.secret == SECRET
    assert not found.is_first_start


def test_as_04_s15_a_torn_tail_is_cut_at_every_length_and_counted():
    whole = MemoryDisk()
    written(whole, [an_entry(1)], [an_entry(2, "b")])
    (name,) = [n for n in whole.names() if n.startswith("log-")]
    data = whole.read(name)
    first = len(data) // 2

    for length in range(first, len(data)):
        disk = MemoryDisk()
        asyncio.run(disk.write("secret", SECRET))
        asyncio.run(disk.write(name, data[:length]))
        found = reopened(disk)
        assert [e.rv for e in found.entries] == [1]
        assert found.bytes_cut == length - first
        assert disk.read(name) == data[:first]


def test_as_06_s15_a_flipped_bit_before_the_last_batch_is_refused():
    whole = MemoryDisk()
    written(whole, [an_entry(1)], [an_entry(2, "b")])
    (name,) = [n for n in whole.names() if n.startswith("log-")]
    data = whole.read(name)

    for offset in range(0, len(data) // 2, 7):
        corrupted = bytearray(data)
        corrupted[offset] ^= 4
        disk = MemoryDisk()
        asyncio.run(disk.write(name, bytes(corrupted)))
        with pytest.raises(JournalError, match="bad record at offset 0") as refused:
            reopened(disk)
        assert refused.value.exit_code == 78


def test_a_missing_log_in_the_middle_is_refused():
    disk = MemoryDisk()
    for batch in ([an_entry(1)], [an_entry(2, "b")], [an_entry(3, "c")]):
        written(disk, batch)  # every start opens a log of its own
    asyncio.run(disk.remove(f"log-{2:020d}"))

    with pytest.raises(JournalError, match="change 3 follows 1") as refused:
        reopened(disk)

    assert refused.value.exit_code == 78


def test_a_snapshot_replaces_the_logs_and_keeps_the_window_with_its_request_ids():
    disk = MemoryDisk()
    asked = an_entry(2, "b", request_id="r", identity="i", code=201)

    async def write():
        journal = DiskJournal(disk, snapshot_after_bytes=1)
        await journal.open(SECRET)
        await journal.append([an_entry(1), asked], 0)
        await journal.fold(lambda: (1, [BaseObject("configmaps", 1, b"{}")]))
        await journal.append([an_entry(3, "c")], 1)

    asyncio.run(write())

    found = reopened(disk)
    assert (found.base_rv, found.base, found.entries) == (
        1,
        [BaseObject("configmaps", 1, b"{}")],
        [asked, an_entry(3, "c")],
    )
    assert [n for n in disk.names() if n.startswith("log-")] == [f"log-{3:020d}"]


def test_a_second_snapshot_has_the_window_of_the_first_and_of_logs_that_stayed():
    disk = MemoryDisk()

    async def write():
        journal = DiskJournal(disk, snapshot_after_bytes=1)
        await journal.open(SECRET)
        await journal.append([an_entry(1), an_entry(2, "b")], 0)
        remove, disk.remove = disk.remove, lambda name: asyncio.sleep(0)
        await journal.fold(lambda: (0, []))
        disk.remove = remove
        await journal.append([an_entry(3, "c", request_id="r", identity="i", code=201)], 0)
        for number in range(4, 12):
            await journal.append([an_entry(number, f"n{number}")], 0)
        await journal.fold(lambda: (1, [BaseObject("configmaps", 1, b"{}")]))

    asyncio.run(write())

    assert [name for name in disk.names() if name.startswith("log-")] == []
    found = reopened(disk)
    assert found.base_rv == 1
    assert [each.rv for each in found.entries] == [*range(2, 12)]
    assert found.entries[1].request_id == "r"


def test_as_19_s18_a_crash_between_snapshot_and_removal_of_logs_brings_nothing_back_twice():
    disk = MemoryDisk()

    class Crash(Exception):
        pass

    async def write():
        journal = DiskJournal(disk, snapshot_after_bytes=1)
        await journal.open(SECRET)
        await journal.append([an_entry(1), an_entry(2, "b")], 0)

        async def crash(name):
            raise Crash

        disk.remove = crash
        await journal.fold(lambda: (2, [BaseObject("configmaps", 1, b"{}"), BaseObject("configmaps", 2, b"{}")]))

    with pytest.raises(Crash):
        asyncio.run(write())

    found = reopened(disk)
    assert (found.base_rv, len(found.base), found.entries) == (2, 2, [])


class FullDisk(MemoryDisk):
    """Writes half of an append, then has no space, until `is_full` is taken away."""

    is_full = False

    async def append_all(self, parts):
        if self.is_full:
            await super().append_all({name: data[: len(data) // 2] for name, data in parts.items()})
            raise OSError(errno.ENOSPC, "No space left on device")
        await super().append_all(parts)


def test_a_half_written_append_is_cut_off_before_the_next_one():
    disk = FullDisk()

    async def write():
        journal = DiskJournal(disk)
        await journal.open(SECRET)
        await journal.append([an_entry(1)], 0)
        disk.is_full = True
        with pytest.raises(OSError, match="No space"):
            await journal.append([an_entry(2, "b")], 0)
        disk.is_full = False
        await journal.probe()
        await journal.append([an_entry(2, "c")], 0)

    asyncio.run(write())

    assert [e.name for e in reopened(disk).entries] == ["a", "c"]


def test_logs_of_earlier_lives_count_towards_the_next_snapshot():
    """A server that is restarted more often than it fills a log still makes snapshots, and its logs do not pile up."""
    disk = MemoryDisk()
    for number in range(1, 7):
        journal = DiskJournal(disk, snapshot_after_bytes=400)

        async def work(journal=journal, number=number):
            await journal.open(SECRET)
            await journal.append([an_entry(number, f"n{number}")], 0)
            await journal.fold(lambda: (number, []))

        asyncio.run(work())

    assert len([name for name in disk.names() if name.startswith("log-")]) < 6
    assert 6 == reopened(disk).base_rv or [6] == [entry.rv for entry in reopened(disk).entries][-1:]
