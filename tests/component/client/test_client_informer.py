"""Informers against an API server that follows a script: ends, silence, expiry, poison."""

import asyncio
import random

import msgspec
import pytest

from lab.scenarios.simulation import simloop
from services.api.errors import Expired, Invalid, Timeout, UnknownOutcome
from services.api.kinds.pod import Pod
from services.api.meta import Key
from services.api.wire import Request, Response, WatchEvent, WatchRequest
from services.client.informer import Informer

END = "end"
LOST = "lost"
SILENT = "silent"


class LoopClock:
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return self.now()


class Events:
    def __init__(self):
        self.lines = []

    def write(self, ev, **fields):
        self.lines.append((ev, fields))


def document(name: str, rv: int, node: str = "") -> bytes:
    metadata = {"name": name, "namespace": "default", "resourceVersion": str(rv)}
    return msgspec.json.encode({"metadata": metadata, "spec": {"nodeName": node}})


def event(kind: str, name: str, rv: int, node: str = "", traceparent: str = "") -> WatchEvent:
    body = document(name, rv, node)
    return WatchEvent(type=kind, namespace="default", name=name, rv=rv, body=body, traceparent=traceparent)


def bookmark(rv: int, *, ends_initial: bool = False) -> WatchEvent:
    return WatchEvent(type="BOOKMARK", rv=rv, initial_events_end=ends_initial)


def failure(error) -> WatchEvent:
    return WatchEvent(type="ERROR", body=msgspec.json.encode(error.status()))


class ScriptedApi:
    """Each watch plays one script: batches, then END, LOST, SILENT (default) or an ApiError."""

    def __init__(self, *scripts, page=None):
        self.scripts = list(scripts)
        self.page = page
        self.watches: list[WatchRequest] = []
        self.times: list[float] = []
        self.lists: list[Request] = []

    async def call(self, request: Request) -> Response:
        self.lists.append(request)
        return Response(code=200, body=msgspec.json.encode(self.page))

    async def watch(self, request: WatchRequest):
        self.watches.append(request)
        self.times.append(asyncio.get_running_loop().time())
        for step in self.scripts.pop(0) if self.scripts else [SILENT]:
            if step == END:
                return
            if step == LOST:
                raise UnknownOutcome("connection lost")
            if step == SILENT:
                break
            if isinstance(step, Exception):
                raise step
            if isinstance(step, float):
                await asyncio.sleep(step)
            else:
                yield step
        await asyncio.Event().wait()


START = [event("ADDED", "a", 3), event("ADDED", "b", 4), bookmark(10, ends_initial=True)]


def follow(api, *, seconds: float, **settings):
    """Run an informer for so many virtual seconds; return it and the changes its handlers got."""

    async def main():
        informer = Informer(api, Pod, clock=LoopClock(), random=random.Random(1), **settings)
        changes = []
        informer.on_change(changes.append)
        task = asyncio.create_task(informer.run())
        await asyncio.sleep(seconds)
        assert not task.done()
        task.cancel()
        return informer, changes

    return simloop.run(main())


def names(informer) -> list[str]:
    return sorted(pod.metadata.name for pod in informer.lister.all())


def test_c1_the_first_synchronisation_asks_for_no_version():
    api = ScriptedApi([START])

    informer, changes = follow(api, seconds=1)

    assert (api.watches[0].resource_version, api.watches[0].send_initial_events) == ("", True)
    assert informer.has_synced
    assert informer.last_rv == 10
    assert [c.new.metadata.name for c in changes] == ["a", "b"]


def test_no_handler_is_called_before_the_initial_state_is_complete():
    informer, changes = follow(ScriptedApi([START[:2]]), seconds=1)

    assert not informer.has_synced
    assert changes == []


def test_a_server_that_refuses_streaming_lists_is_listed():
    page = {"metadata": {"resourceVersion": "10"}, "items": [msgspec.Raw(document("a", 3))]}
    api = ScriptedApi([Invalid("no sendInitialEvents here")], page=page)

    informer, _ = follow(api, seconds=1)

    assert names(informer) == ["a"]
    assert api.lists[0].resource_version == ""
    assert (api.watches[1].resource_version, api.watches[1].send_initial_events) == ("10", False)
    assert api.times[1] == 0.0


def test_c3_after_a_clean_end_the_watch_resumes_at_once_from_the_last_event():
    api = ScriptedApi([START, [event("MODIFIED", "a", 12)], END])

    follow(api, seconds=1)

    assert api.watches[1].resource_version == "12"
    assert api.times[1] == 0.0


def test_c3_bookmarks_move_the_version_a_watch_resumes_from():
    api = ScriptedApi([START, [bookmark(77)], LOST])

    follow(api, seconds=6)

    assert api.watches[1].resource_version == "77"


def test_c3_after_failures_the_wait_grows_from_a_fifth_of_a_second_to_five():
    api = ScriptedApi([START, LOST], *[[LOST] for _ in range(30)])

    follow(api, seconds=100)

    waits = [after - before for before, after in zip(api.times, api.times[1:], strict=False)]
    assert 0.2 <= waits[0] <= 0.6
    assert max(waits[:25]) <= 5.0
    assert sum(waits[10:20]) > 10.0


def test_w13_thirty_seconds_of_silence_end_the_stream_and_it_resumes():
    api = ScriptedApi([START])

    follow(api, seconds=40)

    assert 30.0 <= api.times[1] <= 31.0
    assert api.watches[1].resource_version == "10"


def test_c4_after_410_the_cache_is_replaced_and_vanished_objects_are_reported():
    again = [event("ADDED", "b", 4), event("ADDED", "c", 30), bookmark(40, ends_initial=True)]
    api = ScriptedApi([START, [failure(Expired("too old"))]], [again])

    informer, changes = follow(api, seconds=1)

    assert api.watches[1].send_initial_events
    assert names(informer) == ["b", "c"]
    gone = [c for c in changes if c.new is None]
    assert [(c.old.metadata.name, c.final_state_unknown) for c in gone] == [("a", True)]


def test_w10_three_versions_from_the_future_in_a_row_make_it_take_the_state_again():
    future = [failure(Timeout("too large resource version"))]
    api = ScriptedApi([START, LOST], [future], [future], [future], [[bookmark(2, ends_initial=True)]])

    informer, _ = follow(api, seconds=30)

    assert [w.send_initial_events for w in api.watches[:5]] == [True, False, False, False, True]
    assert informer.last_rv == 2
    assert names(informer) == []


def test_an_object_that_cannot_be_decoded_is_skipped_and_the_rest_goes_on_v11():
    poison = WatchEvent(type="ADDED", namespace="default", name="p", rv=11, body=b'{"spec": []}')
    api = ScriptedApi([START, [poison, event("ADDED", "c", 12)]])

    informer, _ = follow(api, seconds=1)

    assert names(informer) == ["a", "b", "c"]
    assert informer.metrics()['keplab_informer_undecodable_total{resource="pods"}'] == 1
    assert informer.last_rv == 12


def test_changes_carry_the_traceparent_of_the_write_that_made_them():
    api = ScriptedApi([START, [event("MODIFIED", "a", 12, traceparent="00-abc")]])

    _, changes = follow(api, seconds=1)

    assert changes[-1].traceparent == "00-abc"


def test_k3_waiting_for_a_version_ends_with_a_bookmark():
    api = ScriptedApi([START, 5.0, [bookmark(50)]])

    async def main():
        informer = Informer(api, Pod, clock=LoopClock(), random=random.Random(1))
        task = asyncio.create_task(informer.run())
        await informer.wait_until_rv(50)
        task.cancel()
        return LoopClock().now()

    assert simloop.run(main()) == pytest.approx(5.0)


def test_an_own_reply_reaches_handlers_once():
    api = ScriptedApi([START, 5.0, [event("MODIFIED", "a", 12, node="n1")]])

    async def main():
        informer = Informer(api, Pod, clock=LoopClock(), random=random.Random(1))
        changes = []
        informer.on_change(changes.append)
        task = asyncio.create_task(informer.run())
        await informer.wait_until_synced()
        informer.offer(document("a", 12, "n1"))
        informer.offer(document("a", 9, "n0"))
        await asyncio.sleep(10)
        task.cancel()
        return informer, changes

    informer, changes = simloop.run(main())
    assert informer.lister.get(Key("default", "a")).spec.node_name == "n1"
    assert [c.rv for c in changes] == [3, 4, 12]


def test_every_thousand_events_and_at_rest_the_cache_writes_its_hash():
    burst = [event("MODIFIED", "a", 11 + i) for i in range(1000)]
    events = Events()
    api = ScriptedApi([START, burst, [event("ADDED", "c", 2000)], [bookmark(2001)], [bookmark(2002)], [bookmark(2003)]])

    informer, _ = follow(api, seconds=1, events=events)

    syncs = [fields for ev, fields in events.lines if ev == "cache.sync"]
    assert [s["rv_seen"] for s in syncs] == [1010, 2002]
    assert syncs[-1]["data"]["state_hash"] == informer.lister.state_hash()


def test_the_order_of_changes_is_the_same_under_every_schedule():
    def play(seed):
        async def main():
            api = ScriptedApi([START, [event("MODIFIED", "a", 11)], END], [[event("DELETED", "b", 12)], LOST])
            informer = Informer(api, Pod, clock=LoopClock(), random=random.Random(seed))
            changes = []
            informer.on_change(lambda c: changes.append((c.rv, c.object.metadata.name)))
            task = asyncio.create_task(informer.run())
            await asyncio.sleep(3)
            task.cancel()
            return changes

        return simloop.run(main(), seed=seed)

    assert play(1) == play(2) == [(3, "a"), (4, "b"), (11, "a"), (12, "b")]
