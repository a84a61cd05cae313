"""What the database of one API server keeps and refuses; and what it leaves alone when it refuses."""

import asyncio
import errno
import hashlib
import os
import random
import shutil
import sqlite3

import msgspec
import pytest

from apiserver_fake.storage.journal import JournalError
from apiserver_fake.storage.records import Cause, Entry
from apiserver_fake.storage.sqlite import SqliteJournal

SECRET = b"ab" * 32


def an_entry(rv, name="a", previous_rv=0, kind="ADDED", **request):
    return Entry(rv, kind, rv, previous_rv, "configmaps", "default", name, "u", b'{"rv":%d}' % rv, **request)


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
    monkeypatch.setattr("apiserver_fake.storage.sqlite.PRUNE_AFTER_CHANGES", 1)
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


def crashed(tmp_path, *batches, name="crashed"):
    """Return a directory as a SIGKILL leaves it: what was appended since the first start is in the log."""
    copy = tmp_path / name

    async def steps(journal, _):
        for batch in batches:
            await journal.append(batch, 0)
        shutil.copytree(tmp_path / "live", copy)

    in_sqlite(tmp_path / "live", steps)
    return copy


def refused_by(directory):
    with pytest.raises(JournalError) as refused:
        in_sqlite(directory, None)
    assert refused.value.exit_code == 78
    return refused.value.message


def content_of(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if not path.name.endswith("-shm")}


@pytest.mark.parametrize(
    ("lost", "why"),
    [
        (("store.db-wal", "acked"), "acked: missing; changes after 0 may be lost"),
        (("store.db-wal", "acked", "store.db-shm", "lock"), "acked: missing; changes after 0 may be lost"),
        (("store.db-wal",), "change 2 was acknowledged, the log ends at 0"),
        (("acked",), "acked: missing; changes after 2 may be lost"),
        (("store.db",), "missing, but store.db-wal is there"),
        (("store.db", "store.db-wal"), "missing or empty; change 2 was acknowledged"),
    ],
)
def test_s15_a_store_that_lost_a_file_is_refused_and_stays_as_it_was_found(tmp_path, lost, why):
    directory = crashed(tmp_path, [an_entry(1)], [an_entry(2, "b")])
    for name in lost:
        (directory / name).unlink(missing_ok=name == "store.db-shm")
    before = {name: data for name, data in content_of(directory).items() if data}

    assert why in refused_by(directory)
    assert {name: data for name, data in content_of(directory).items() if data} == before
    assert why in refused_by(directory)  # and again: the first refusal has destroyed no evidence


def test_s15_a_store_that_lost_only_what_sqlite_makes_anew_is_served_whole(tmp_path):
    directory = crashed(tmp_path, [an_entry(1)], [an_entry(2, "b")])
    for name in ("store.db-shm", "lock"):
        (directory / name).unlink(missing_ok=True)

    assert [entry.rv for entry in in_sqlite(directory, None).entries] == [1, 2]


def test_s15_acked_cut_anywhere_or_with_any_bit_flipped_is_refused(tmp_path):
    directory = crashed(tmp_path, [an_entry(1)])
    (directory / "store.db-wal").unlink()
    whole = (directory / "acked").read_bytes()

    for length in range(len(whole)):
        (directory / "acked").write_bytes(whole[:length])
        assert "acked" in refused_by(directory)
    for bit in range(8 * len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        (directory / "acked").write_bytes(data)
        assert "acked: damaged" in refused_by(directory)


def test_s15_acked_of_another_store_is_refused(tmp_path):
    directory = crashed(tmp_path, [an_entry(1)])
    in_sqlite(tmp_path / "other", appending([an_entry(1)]), b"cd" * 32)
    shutil.copy(tmp_path / "other" / "acked", directory / "acked")

    assert "acked: of another store" in refused_by(directory)


def test_s15_a_new_directory_and_one_that_was_copied_whole_are_served(tmp_path):
    directory = crashed(tmp_path, [an_entry(1)], [an_entry(2, "b")])
    shutil.copytree(directory, tmp_path / "copied")

    assert [entry.rv for entry in in_sqlite(tmp_path / "copied", None).entries] == [1, 2]
    (tmp_path / "new").mkdir()
    assert in_sqlite(tmp_path / "new", None).is_first_start


def test_a_store_of_an_earlier_release_is_taken_over_with_its_acked(tmp_path):
    directory = crashed(tmp_path, [an_entry(1)], [an_entry(2, "b")])
    (directory / "acked").write_bytes((2).to_bytes(8, "big"))

    assert [entry.rv for entry in in_sqlite(directory, None).entries] == [1, 2]

    assert (directory / "acked").read_bytes().startswith(b"KLA1")
    (directory / "acked").write_bytes((3).to_bytes(8, "big"))
    assert "change 3 was acknowledged" in refused_by(directory)


def test_s18_a_crash_at_any_step_of_the_first_start_leaves_a_directory_that_starts(tmp_path, monkeypatch):
    import apiserver_fake.storage.sqlite as module

    class Crash(BaseException):
        pass

    def steps_of(directory, stop_at):
        """Run a first start up to its `stop_at`-th statement or file; return whether it got so far."""
        count = 0

        def step():
            nonlocal count
            count += 1
            if count > stop_at:
                raise Crash

        class Connection(sqlite3.Connection):
            def execute(self, *arguments):
                step()
                return super().execute(*arguments)

            def executescript(self, *arguments):
                step()
                return super().executescript(*arguments)

        connect, write = sqlite3.connect, module.write_atomically
        with monkeypatch.context() as patch:
            patch.setattr(module.sqlite3, "connect", lambda *a, **k: connect(*a, **k, factory=Connection))
            patch.setattr(module, "write_atomically", lambda *a, **k: (step(), write(*a, **k)))
            journal = SqliteJournal(directory)
            try:
                journal._open(SECRET)
            except Crash:
                return False
            finally:
                shutil.copytree(directory, tmp_path / f"left-{stop_at}")
                journal._close()
        return True

    stop_at = 0
    while not steps_of(tmp_path / f"made-{stop_at}", stop_at):
        found = in_sqlite(tmp_path / f"left-{stop_at}", appending([an_entry(1)]))
        assert found.entries == []
        stop_at += 1
    assert stop_at > 5


def test_a_loss_is_accepted_only_on_purpose_and_no_version_is_given_out_twice(tmp_path):
    directory = crashed(
        tmp_path, [an_entry(1)], [an_entry(2, "b"), an_entry(3, "a", 1, "MODIFIED")], [an_entry(4, "c")]
    )
    log = directory / "store.db-wal"
    data = bytearray(log.read_bytes())
    data[-10] ^= 1  # in the last change's record
    log.write_bytes(data)
    assert "change 4 was acknowledged, the log ends at 3" in refused_by(directory)

    journal = SqliteJournal(directory)
    try:
        goes_on = journal.accept_loss()
        with pytest.raises(JournalError, match="nothing is missing"):
            journal.accept_loss()
    finally:
        journal.release()
    found = in_sqlite(directory, appending([an_entry(goes_on + 1, "d")]))

    assert goes_on == 1_000_000_003
    assert (found.base_rv, sorted(kept.rv for kept in found.base), found.entries) == (goes_on, [2, 3], [])
    assert [entry.rv for entry in in_sqlite(directory, None).entries] == [goes_on + 1]


def test_what_cannot_be_read_cannot_be_accepted(tmp_path):
    directory = crashed(tmp_path, [an_entry(1)])
    (directory / "store.db").write_bytes(b"this is not a database" * 400)

    journal = SqliteJournal(directory)
    try:
        with pytest.raises(JournalError, match="there is nothing to go on with"):
            journal.accept_loss()
    finally:
        journal.release()


def test_s16_acked_that_cannot_be_written_is_fatal_and_never_taken_for_a_full_disk(tmp_path, monkeypatch):
    async def steps(journal, _):
        await journal.append([an_entry(1)], 0)

        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("apiserver_fake.storage.sqlite.os.pwrite", full)
        with pytest.raises(OSError, match="acked cannot be written") as failed:
            await journal.append([an_entry(2, "b")], 0)
        assert (
            failed.value.errno == errno.EIO
        )  # change 2 is durable: to append it again would be to give its version twice
        monkeypatch.undo()

    in_sqlite(tmp_path, steps)

    assert [entry.rv for entry in in_sqlite(tmp_path, None).entries] == [1, 2]


def test_s1_every_commit_is_synced(tmp_path):
    async def steps(journal, _):
        (mode,), (synchronous,) = (
            journal._database.execute(f"PRAGMA {name}").fetchone() for name in ("journal_mode", "synchronous")
        )
        assert (mode, synchronous) == ("wal", 2)

    in_sqlite(tmp_path, steps)


def test_the_database_shrinks_after_what_was_in_it_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr("apiserver_fake.storage.sqlite.PRUNE_AFTER_CHANGES", 1)
    monkeypatch.setattr("apiserver_fake.storage.sqlite.FREE_PAGES_MAX", 16)
    big = b"x" * 50_000

    async def steps(journal, _):
        rv = 0
        for number in range(40):
            rv += 1
            await journal.append([Entry(rv, "ADDED", rv, 0, "configmaps", "default", f"p{number}", "u", big)], 0)
        for number in range(40):
            rv += 1
            gone = Entry(rv, "DELETED", rv, number + 1, "configmaps", "default", f"p{number}", "u", b"{}")
            await journal.append([gone], rv - 1)
        await journal.append([an_entry(rv + 1)], rv)

    in_sqlite(tmp_path, steps)

    assert (tmp_path / "store.db").stat().st_size < 200_000
    assert len(in_sqlite(tmp_path, None).entries) == 1


def test_s2_what_a_killed_server_left_unsynced_is_synced_before_it_is_served(tmp_path, monkeypatch):
    directory = crashed(tmp_path, [an_entry(1)], [an_entry(2, "b")])
    (directory / "acked").write_bytes((1).to_bytes(8, "big"))  # it was killed between commit and acknowledgement
    synced, acked = [], []
    fdatasync, pwrite = os.fdatasync, os.pwrite
    log = (directory / "store.db-wal").stat().st_ino
    monkeypatch.setattr("os.fdatasync", lambda fd: (synced.append(os.fstat(fd).st_ino), fdatasync(fd))[1])
    monkeypatch.setattr("os.pwrite", lambda *given: (acked.append(list(synced)), pwrite(*given))[1])

    assert [entry.rv for entry in in_sqlite(directory, None).entries] == [1, 2]

    assert acked == [[log]]
