"""What the journals keep, cut and refuse."""

import asyncio
import errno
import hashlib
import random
import shutil
import sqlite3

import msgspec
import pytest

from apiserver_fake.storage.journal import DiskJournal, JournalError, Kept, SqliteJournal
from apiserver_fake.storage.records import Cause, Entry
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


def test_as_04_a_torn_tail_is_cut_at_every_length_and_counted():
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


def test_as_06_a_flipped_bit_before_the_last_batch_is_refused():
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
        await journal.fold(lambda: (1, [Kept("configmaps", 1, b"{}")]))
        await journal.append([an_entry(3, "c")], 1)

    asyncio.run(write())

    found = reopened(disk)
    assert (found.base_rv, found.base, found.entries) == (1, [Kept("configmaps", 1, b"{}")], [asked, an_entry(3, "c")])
    assert [n for n in disk.names() if n.startswith("log-")] == [f"log-{3:020d}"]


def test_as_19_a_crash_between_snapshot_and_removal_of_logs_brings_nothing_back_twice():
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
        await journal.fold(lambda: (2, [Kept("configmaps", 1, b"{}"), Kept("configmaps", 2, b"{}")]))

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


def in_sqlite(directory, steps, secret=SECRET):
    """Open, run `steps(journal, recovered)`, close; return what was recovered."""

    async def work():
        journal = SqliteJournal(directory)
        try:
            found = await journal.open(secret)
            if steps is not None:
                await steps(journal, found)
        finally:
            await journal.close()
        return found

    return asyncio.run(work())


def appending(*batches, window_start=0):
    async def steps(journal, _):
        for batch in batches:
            await journal.append(batch, window_start)

    return steps


def test_sqlite_gives_back_what_was_appended_and_its_secret(tmp_path):
    batches = [[an_entry(1, request_id="r", answer=b"x", fingerprint=b"f")], [an_entry(2, "b"), an_entry(3, "c")]]

    assert in_sqlite(tmp_path, appending(*batches)).is_first_start
    found = in_sqlite(tmp_path, None, b"other")

    assert found.entries == [entry for batch in batches for entry in batch]
    assert (found.secret, found.is_first_start) == (SECRET, False)


def test_sqlite_reads_a_table_of_a_release_that_kept_no_causes(tmp_path):
    made, changed = an_entry(1), an_entry(2, "b")
    in_sqlite(tmp_path, appending([made, changed]))
    later = ("verb", "subresource", "at_s")
    with sqlite3.connect(tmp_path / "store.db") as database:
        for entry in (made, changed):
            row = msgspec.structs.astuple(entry)[: -len(later)]
            old = hashlib.blake2b(msgspec.msgpack.encode(row), digest_size=8).digest()
            database.execute("UPDATE changes SET checksum = ? WHERE rv = ?", (old, entry.rv))
        for name in later:
            database.execute(f"ALTER TABLE changes DROP COLUMN {name}")
    database.close()
    caused = msgspec.structs.replace(an_entry(3, "c"), verb="create", subresource="binding", at_s=1.5)

    in_sqlite(tmp_path, appending([caused]))
    found = in_sqlite(tmp_path, None)

    assert found.entries == [made, changed, caused]
    assert [entry.cause for entry in found.entries] == [None, None, Cause("", "create", "binding", at_s=1.5)]


def test_sqlite_folds_what_left_the_window_into_the_objects_of_then(tmp_path, monkeypatch):
    monkeypatch.setattr("apiserver_fake.storage.journal.PRUNE_AFTER_CHANGES", 1)
    batch = [
        an_entry(1, "a"), an_entry(2, "b"), an_entry(3, "a", 1, "MODIFIED"), an_entry(4, "b", 2, "DELETED"),
        an_entry(5, "a", 3, "MODIFIED"),
    ]  # fmt: skip

    async def steps(journal, _):
        await journal.append(batch, 0)
        await journal.append([an_entry(6, "c")], 4)

    in_sqlite(tmp_path, steps)
    found = in_sqlite(tmp_path, None)

    # At version 4 only "a" of version 3 was there; version 5 names it as its predecessor.
    assert (found.base_rv, [kept.rv for kept in found.base]) == (4, [3])
    assert [entry.rv for entry in found.entries] == [5, 6]


def test_as_07_a_second_server_on_the_directory_leaves_with_75(tmp_path):
    async def steps(journal, _):
        second = SqliteJournal(tmp_path)
        with pytest.raises(JournalError, match="in use by another") as refused:
            await second.open(SECRET)
        await second.close()
        assert refused.value.exit_code == 75

    in_sqlite(tmp_path, steps)


def test_a_changed_row_is_refused_with_78(tmp_path):
    in_sqlite(tmp_path, appending([an_entry(1), an_entry(2, "b")]))
    with sqlite3.connect(tmp_path / "store.db") as database:
        database.execute("UPDATE changes SET body = ? WHERE rv = 1", (b'{"rv":9}',))
    database.close()

    with pytest.raises(JournalError, match="bad checksum in change 1") as refused:
        in_sqlite(tmp_path, None)

    assert refused.value.exit_code == 78


def test_a_log_that_lost_acknowledged_changes_is_refused_with_78(tmp_path):
    in_sqlite(tmp_path, appending([an_entry(1)], [an_entry(2, "b")]))
    with sqlite3.connect(tmp_path / "store.db") as database:
        database.execute("DELETE FROM changes WHERE rv = 2")
    database.close()

    with pytest.raises(JournalError, match="change 2 was acknowledged, the log ends at 1") as refused:
        in_sqlite(tmp_path, None)

    assert refused.value.exit_code == 78


def test_a_file_that_is_no_database_is_refused_with_78(tmp_path):
    (tmp_path / "store.db").write_bytes(b"this is not a database" * 100)

    with pytest.raises(JournalError, match=r"store\.db") as refused:
        in_sqlite(tmp_path, None)

    assert refused.value.exit_code == 78


def test_a_full_database_says_enospc_and_takes_writes_again_later(tmp_path):
    async def steps(journal, _):
        await journal.append([an_entry(1)], 0)
        database = journal._database
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count={pages}")
        big = Entry(2, "ADDED", 2, 0, "configmaps", "default", "b", "u", b"x" * 200_000)
        with pytest.raises(OSError, match="the store is full") as full:
            await journal.append([big], 0)
        assert full.value.errno == errno.ENOSPC
        database.execute("PRAGMA max_page_count=100000")
        await journal.probe()
        await journal.append([big], 0)

    in_sqlite(tmp_path, steps)

    assert [entry.rv for entry in in_sqlite(tmp_path, None).entries] == [1, 2]


def test_as_06_a_flipped_bit_in_database_or_log_is_refused_or_changes_nothing(tmp_path):
    batches = [[an_entry(20 * b + i + 1, f"p{b}-{i}") for i in range(20)] for b in range(20)]
    crashed, dice = tmp_path / "crashed", random.Random(5)

    async def steps(journal, _):
        for batch in batches:
            await journal.append(batch, 0)
        shutil.copytree(tmp_path / "live", crashed)  # what a SIGKILL leaves: everything is still in the log

    in_sqlite(tmp_path / "live", steps)
    good = in_sqlite(tmp_path / "live", None).entries
    results = {"store.db": [], "store.db-wal": []}
    for source, name in ((tmp_path / "live", "store.db"), (crashed, "store.db-wal")):
        for attempt in range(15):
            copy = tmp_path / f"{name}-{attempt}"
            shutil.copytree(source, copy)
            data = bytearray((copy / name).read_bytes())
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
            (copy / name).write_bytes(data)
            try:
                assert in_sqlite(copy, None).entries == good
            except JournalError as refused:
                results[name].append(refused.exit_code)

    assert len(good) == 400
    assert results["store.db-wal"] == [78] * 15
    assert set(results["store.db"]) == {78}  # the others hit bytes that nothing uses


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
