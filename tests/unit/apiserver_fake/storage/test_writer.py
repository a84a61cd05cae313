"""The one committer: order, durability before answers, request ids, full disks."""

import asyncio
import errno

import msgspec
import pytest

from apiserver_fake.storage.journal import Journal, JournalError
from apiserver_fake.storage.records import Selection
from apiserver_fake.storage.store import Key, Store
from apiserver_fake.storage.writer import (
    BATCH_CHANGES,
    QUEUE_MAX,
    QUEUE_RESERVED,
    Answer,
    AnswerTable,
    Operation,
    Writer,
    answers_of,
)
from lab.scenarios.simulation import simloop
from services.api.errors import Conflict, TooManyRequests, Unavailable
from services.api.resources import resources
from services.api.wire import Response

CONFIGMAPS = resources()["configmaps"]


class LoopClock:
    """Virtual time."""

    def now(self):
        return asyncio.get_running_loop().time()

    def wall(self):
        return self.now()


class AJournal(Journal):
    """Keeps batches in memory, takes 10 ms for each, and fails on request."""

    is_durable = True

    def __init__(self):
        self.batches, self.error, self.probes = [], None, 0

    async def append(self, entries, window_start):
        await asyncio.sleep(0.01)
        if self.error is not None:
            raise self.error
        self.batches.append(list(entries))

    async def probe(self):
        self.probes += 1
        if self.error is not None:
            raise self.error

    async def fold(self, base):
        pass


class World:
    """A writer over a store and a journal, with what it published."""

    def __init__(self, store=None):
        self.store, self.journal, self.published = store or Store(), AJournal(), []
        self.writer = Writer(self.store, self.journal, LoopClock(), lambda changes: self.published.extend(changes))
        self.writer.is_open = True

    def put(self, name, *, request_id="", fingerprint=b"", deadline_s=30.0, identity="ann", must_be_new=False):
        def plan(staged):
            if must_be_new and staged.get("configmaps", "default", name) is not None:
                raise Conflict(f"{name} is there")
            record = staged.put(CONFIGMAPS, {"metadata": {"name": name, "namespace": "default"}})
            return Response(code=201, rv=record.rv, body=record.body)

        loop = asyncio.get_running_loop()
        done = loop.create_future()
        return self.writer.submit(
            Operation(plan, done, loop.time() + deadline_s, None, identity, request_id, fingerprint)
        )


def simulated(scenario, store=None):
    """Run `scenario(world)` with its writer, in virtual time."""

    async def main():
        world = World(store)
        task = asyncio.create_task(world.writer.run())
        try:
            await scenario(world)
        finally:
            task.cancel()
            (error,) = await asyncio.gather(task, return_exceptions=True)
        return world, error

    return simloop.run(main())


def test_s1_no_client_is_answered_and_nothing_is_seen_before_it_is_durable():
    async def scenario(world):
        answer = world.put("a")
        await asyncio.sleep(0.009)
        assert not answer.done()
        assert world.store.rv == 0
        assert not world.published
        assert (await answer).rv == 1
        assert world.store.rv == 1
        assert len(world.journal.batches) == 1

    simulated(scenario)


def test_s2_a_conflict_with_a_pending_change_waits_until_that_is_durable():
    async def scenario(world):
        first = world.put("a", must_be_new=True)
        second = world.put("a", must_be_new=True)
        await asyncio.sleep(0.009)
        assert not second.done()
        assert ((await first).code, (await second).code) == (201, 409)

    simulated(scenario)


def test_s3_versions_are_dense_over_refusals_and_batches():
    async def scenario(world):
        answers = [world.put(f"p{i % 300}", must_be_new=True) for i in range(600)]
        codes = [(await answer).code for answer in answers]
        assert codes.count(201) == 300

    world, _ = simulated(scenario)

    assert [entry.rv for batch in world.journal.batches for entry in batch] == list(range(1, 301))
    assert max(len(batch) for batch in world.journal.batches) == BATCH_CHANGES


def test_s8_an_operation_past_its_deadline_has_no_effect():
    async def scenario(world):
        world.put("a")
        await asyncio.sleep(0.001)
        late = world.put("b", deadline_s=0.005)
        assert (await late).code == 504

    world, _ = simulated(scenario)

    assert world.store.get("configmaps", "default", "b") is None
    assert world.store.rv == 1


def test_s8_a_cancelled_caller_does_not_take_its_write_back():
    async def scenario(world):
        caller = asyncio.create_task(_shielded(world.put("a")))
        await asyncio.sleep(0.001)
        caller.cancel()
        await asyncio.sleep(1)

    async def _shielded(answer):
        return await asyncio.shield(answer)

    world, _ = simulated(scenario)

    assert world.store.get("configmaps", "default", "a") is not None


def test_s9_the_second_arrival_gets_the_recorded_answer_even_while_the_first_is_under_way():
    async def scenario(world):
        first, second = world.put("a", request_id="r"), world.put("a", request_id="r")
        assert await first == await second
        assert await world.put("a", request_id="r") == await first
        other = await world.put("a", request_id="r", identity="bob")
        assert other.rv == 2

    world, _ = simulated(scenario)

    assert world.store.rv == 2


def test_s9_a_reused_request_id_is_a_conflict():
    async def scenario(world):
        await world.put("a", request_id="r", fingerprint=b"1")
        reused = await world.put("b", request_id="r", fingerprint=b"2")
        assert (reused.code, reused.error().reason) == (409, "RequestIDReused")

    simulated(scenario)


def test_s9_a_refusal_is_remembered_too_so_a_late_duplicate_cannot_succeed():
    async def scenario(world):
        await world.put("a")
        assert (await world.put("a", request_id="r", must_be_new=True)).code == 409
        staged = world.store.stage()
        staged.remove(CONFIGMAPS, {"metadata": {"name": "a", "namespace": "default"}})
        world.store.publish(staged.changes, 0.0)
        assert (await world.put("a", request_id="r", must_be_new=True)).code == 409

    simulated(scenario)


def test_s9_answers_live_in_the_journal():
    async def scenario(world):
        await world.put("a", request_id="r", fingerprint=b"f")

    world, _ = simulated(scenario)

    ((key, answer),) = answers_of(world.journal.batches[0], 5.0)
    body = world.store.get("configmaps", "default", "a").body
    assert key == ("ann", "r")
    assert answer == Answer(b"f", Response(code=201, rv=1, body=body), 5.0)


def test_s9_the_table_forgets_after_five_minutes_and_ten_thousand():
    table = AnswerTable(ttl_s=300, entries_max=3)
    for step in range(5):
        table.keep(("i", str(step)), Answer(b"", Response(code=200), float(step)))

    assert [table.find(("i", str(step)), 4.0) is not None for step in range(5)] == [False, False, True, True, True]
    assert table.find(("i", "2"), 302.5) is None


def test_s16_a_full_disk_refuses_writes_serves_reads_and_recovers_by_itself():
    async def scenario(world):
        await world.put("a")
        world.journal.error = OSError(errno.ENOSPC, "No space left on device")
        refused = await world.put("b")
        assert (refused.code, refused.error().reason, refused.error().retry_after_s) == (503, "StoreReadOnly", 5)
        with pytest.raises(Unavailable, match="read-only"):
            world.put("c")
        assert (world.writer.read_only.why, world.writer.read_only.since_s) == ("No space left on device", 0.02)
        assert [r.name for r in world.store.select("configmaps", Selection()).records] == ["a"]
        world.journal.error = None
        await asyncio.sleep(1.1)
        assert world.writer.read_only is None
        assert (await world.put("b")).rv == 2

    world, _ = simulated(scenario)

    assert [entry.rv for batch in world.journal.batches for entry in batch] == [1, 2]


def test_s16_a_snapshot_that_finds_the_disk_full_takes_no_commit_back():
    async def scenario(world):
        async def fold(base):
            raise OSError(errno.ENOSPC, "No space left on device")

        world.journal.fold = fold
        assert (await world.put("a")).rv == 1
        assert (await world.put("b")).rv == 2

    simulated(scenario)


def test_as_03_s16_a_failed_sync_is_fatal_and_no_client_gets_success():
    async def scenario(world):
        world.journal.error = OSError(errno.EIO, "Input/output error")
        answer = world.put("a")
        await asyncio.sleep(1)
        assert not answer.done()

    world, error = simulated(scenario)

    leaf = error
    while isinstance(leaf, BaseExceptionGroup):
        leaf = leaf.exceptions[0]
    assert isinstance(leaf, JournalError)
    assert leaf.exit_code == 74
    assert world.store.rv == 0


def test_a_full_queue_is_too_many_requests_and_components_keep_places_of_their_own():
    async def scenario(world):
        for i in range(QUEUE_MAX - QUEUE_RESERVED):
            world.put(f"p{i}")
        with pytest.raises(TooManyRequests):
            world.put("one more")
        for i in range(QUEUE_RESERVED):
            world.put(f"n{i}", identity="system:node:n1")
        with pytest.raises(TooManyRequests):
            world.put("one more", identity="system:node:n1")

    simulated(scenario)


def test_an_operation_that_trips_over_a_bug_is_a_500_and_the_others_go_on():
    async def scenario(world):
        def broken(staged):
            staged.put(CONFIGMAPS, {"metadata": {"name": "x", "namespace": "default"}})
            raise RuntimeError("oops")

        done = asyncio.get_running_loop().create_future()
        bad = world.writer.submit(Operation(broken, done, 30.0))
        good = world.put("a")
        assert ((await bad).code, (await good).rv) == (500, 1)
        assert world.store.get("configmaps", "default", "x") is None

    world, _ = simulated(scenario)

    assert msgspec.json.decode(world.journal.batches[0][0].body)["metadata"]["name"] == "a"
    assert Key("default", "a") == world.published[0].record.key


def test_s9_an_answer_is_whole_again_while_the_window_has_its_change_and_after():
    async def scenario(world):
        for number in range(30):
            await world.put(f"n{number}", request_id=f"r{number}", fingerprint=b"f")
            first = world.writer.answers.kept[("ann", "r0")]
            seen.append((world.store.window_start > 0, first.response.body != b""))
            whole = world.writer.find_answer("ann", "r0", b"f")
            assert (whole.code, whole.rv, whole.body) == (201, 1, world.journal.batches[0][0].body)
        again.extend(world.writer.find_answer("ann", f"r{number}", b"f").body for number in range(30))

    seen, again = [], []
    world, _ = simulated(scenario, store=Store(window_s=0.0, window_changes=20))

    assert seen == [(number >= 20, number >= 20) for number in range(30)]
    assert again == [batch[0].body for batch in world.journal.batches]


def test_s9_the_table_keeps_no_versions_of_answers_that_it_has_forgotten():
    table = AnswerTable(ttl_s=300, entries_max=3, body_of=lambda resource, rv: b"body")
    for rv in range(1, 10):
        table.keep(("i", str(rv)), Answer(b"", Response(code=200, rv=rv, body=b"body"), float(rv), "pods"))

    assert [rv for rv, _ in table._lent] == [7, 8, 9]
