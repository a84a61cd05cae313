"""The client against an API server that follows a script: lost answers, overload, refusals."""

import asyncio
import random

import msgspec
import pytest

from lab.scenarios.simulation import simloop
from services.api.errors import Conflict, Expired, NotFound, TooManyRequests, Unavailable, UnknownOutcome
from services.api.meta import Key
from services.api.wire import Request, Response
from services.client.client import Client

LOST = "lost"
SILENT = "silent"
POD = {"metadata": {"name": "a", "namespace": "default"}}


class LoopClock:
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return 1_700_000_000.0 + self.now()


class ScriptedApi:
    """Answers call after call from a script; the last line repeats. Remembers what was asked, and when."""

    def __init__(self, *script):
        self.script = list(script)
        self.requests: list[Request] = []
        self.times: list[float] = []

    async def call(self, request: Request) -> Response:
        self.requests.append(request)
        self.times.append(asyncio.get_running_loop().time())
        line = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if line == LOST:
            raise UnknownOutcome("connection lost")
        if line == SILENT:
            await asyncio.Event().wait()
        return line

    def watch(self, request):
        raise NotImplementedError


def ok(rv: int = 7) -> Response:
    return Response(code=200, rv=rv, body=msgspec.json.encode(POD))


def refused(error) -> Response:
    return Response(code=error.code, body=msgspec.json.encode(error.status()))


def play(api: ScriptedApi, act):
    async def main():
        return await act(Client(api, LoopClock(), random.Random(1)))

    return simloop.run(main())


def test_c6_a_write_with_unknown_outcome_is_repeated_with_the_same_request_id():
    api = ScriptedApi(LOST, LOST, ok())

    play(api, lambda client: client.create("pods", POD))

    assert len(api.requests) == 3
    assert len({r.request_id for r in api.requests}) == 1
    assert len(api.requests[0].request_id) == 32


def test_two_writes_have_different_request_ids():
    api = ScriptedApi(ok())

    async def act(client):
        await client.create("pods", POD)
        await client.create("pods", POD)

    play(api, act)

    assert api.requests[0].request_id != api.requests[1].request_id


def test_an_answer_that_never_comes_leaves_time_to_ask_again():
    api = ScriptedApi(SILENT, ok(9))

    rv = play(api, lambda client: client.patch_rv("pods", Key("default", "a"), {}))

    assert rv == 9
    assert 5.0 <= api.times[1] <= 6.0


def test_an_outcome_unknown_until_the_deadline_is_raised_as_unknown():
    api = ScriptedApi(LOST)

    with pytest.raises(UnknownOutcome, match="create pods default/a"):
        play(api, lambda client: client.create("pods", POD))

    assert api.times[-1] < 30.0


def test_a_503_after_a_lost_answer_does_not_make_the_outcome_known():
    api = ScriptedApi(LOST, refused(Unavailable("shutting down")))

    with pytest.raises(UnknownOutcome):
        play(api, lambda client: client.create("pods", POD))


def test_a_server_that_stays_unavailable_is_reported_as_such():
    api = ScriptedApi(refused(Unavailable("not ready")))

    with pytest.raises(Unavailable):
        play(api, lambda client: client.create("pods", POD))

    assert len(api.requests) > 3


def test_a_429_is_waited_out_as_the_server_asks():
    api = ScriptedApi(refused(TooManyRequests("slow down", retry_after_s=4)), ok())

    play(api, lambda client: client.create("pods", POD))

    assert 4.0 <= api.times[1] <= 4.2


def test_a_429_that_names_no_time_is_a_definite_no():
    api = ScriptedApi(refused(TooManyRequests("disruption budget")))

    with pytest.raises(TooManyRequests):
        play(api, lambda client: client.create("pods", POD, subresource="eviction"))

    assert len(api.requests) == 1


def test_a_timeout_answer_is_unknown_for_writes():
    timeout = Response(code=504, body=b'{"reason":"Timeout","message":"late"}')
    api = ScriptedApi(timeout, ok())

    play(api, lambda client: client.create("pods", POD))

    assert len({r.request_id for r in api.requests}) == 1
    assert len(api.requests) == 2


def test_conflicts_and_other_refusals_are_the_callers_at_once():
    for error in (Conflict("someone wrote first"), NotFound("no such pod")):
        api = ScriptedApi(refused(error))
        with pytest.raises(type(error)):
            play(api, lambda client: client.update("pods", Key("default", "a"), POD))
        assert len(api.requests) == 1


def test_a_list_follows_its_pages_to_the_end():
    pages = [
        {"metadata": {"resourceVersion": "40", "continue": "next"}, "items": [{"metadata": {"name": "a"}}]},
        {"metadata": {"resourceVersion": "40"}, "items": [{"metadata": {"name": "b"}}]},
    ]
    api = ScriptedApi(*(Response(code=200, rv=40, body=msgspec.json.encode(page)) for page in pages))

    items, rv = play(api, lambda client: client.list("pods"))

    assert [i["metadata"]["name"] for i in items] == ["a", "b"]
    assert rv == 40
    assert api.requests[1].continue_token == "next"


def test_a_list_whose_version_expires_between_pages_begins_anew():
    first = {"metadata": {"resourceVersion": "40", "continue": "next"}, "items": [{"metadata": {"name": "a"}}]}
    whole = {"metadata": {"resourceVersion": "90"}, "items": [{"metadata": {"name": "b"}}]}
    api = ScriptedApi(
        Response(code=200, body=msgspec.json.encode(first)),
        refused(Expired("the token's version is gone")),
        Response(code=200, body=msgspec.json.encode(whole)),
    )

    items, rv = play(api, lambda client: client.list("pods"))

    assert ([i["metadata"]["name"] for i in items], rv) == (["b"], 90)


def test_a_bind_carries_uid_and_expected_unbind_count():
    api = ScriptedApi(ok(12))

    rv = play(api, lambda client: client.bind(Key("default", "a"), "u1", "n1", expected_unbind_count=2))

    binding = msgspec.json.decode(api.requests[0].body)
    assert rv == 12
    assert binding["target"]["name"] == "n1"
    assert binding["expectedUnbindCount"] == 2
    assert (api.requests[0].uid, binding["metadata"]["uid"]) == ("u1", "u1")


def test_c11_a_leader_sends_its_epoch_with_every_mutation_and_no_read():
    api = ScriptedApi(ok())

    async def act(client):
        client.lease_epoch = "kube-system/scheduler/3"
        await client.get("pods", Key("default", "a"))
        await client.create("pods", POD)

    play(api, act)

    assert [r.lease_epoch for r in api.requests] == ["", "kube-system/scheduler/3"]
