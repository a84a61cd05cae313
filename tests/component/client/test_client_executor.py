"""The executor, the recorder and the elector against an API server that answers by rule."""

import asyncio
import random

import msgspec
import pytest

from lab.scenarios.simulation import simloop
from services.api.errors import (
    AlreadyExists,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    TooManyRequests,
    Unavailable,
    UnknownOutcome,
)
from services.api.meta import Key
from services.api.wire import Request, Response
from services.client.client import Client
from services.client.executor import NOT_PERFORMED, Executor, Outcome
from services.client.leases import Elector, LeadershipLost
from services.client.recorder import QUEUE_MAX, Recorder
from services.reconcile.actions import Batch, Create, Delete, Patch, RecordEvent, Update

KEY = Key("default", "web")


class LoopClock:
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return 1_700_000_000.0 + self.now()


class RuledApi:
    """Answers every call by one function; errors it returns become refusals. Counts calls in flight."""

    def __init__(self, answer=lambda request: None):
        self.answer = answer
        self.requests: list[Request] = []
        self.in_flight = 0
        self.in_flight_max: list[int] = []
        self.rv = 100

    async def call(self, request: Request) -> Response:
        self.requests.append(request)
        self.in_flight += 1
        self.in_flight_max.append(self.in_flight)
        await asyncio.sleep(0.01)
        self.in_flight -= 1
        result = self.answer(request)
        if isinstance(result, UnknownOutcome):
            raise result
        if isinstance(result, Exception):
            return Response(code=result.code, body=msgspec.json.encode(result.status()))
        self.rv += 1
        return Response(code=200, rv=self.rv, body=msgspec.json.encode(result) if result else request.body or b"{}")

    def watch(self, request):
        raise NotImplementedError


class Recorded:
    def __init__(self):
        self.reasons = []

    def record(self, action, traceparent=""):
        self.reasons.append(action.reason)


def pod(name: str) -> Create:
    return Create("pods", {"metadata": {"name": name, "namespace": "default"}})


def said(reason: str) -> RecordEvent:
    return RecordEvent("ReplicaSet", "apps/v1", KEY, "u1", reason, "message")


def perform(api, *actions):
    """Perform with a fresh executor; return report, what was recorded, and what was reported failed."""
    recorded, failed = Recorded(), []

    async def main():
        executor = Executor(Client(api, LoopClock(), random.Random(1)), recorded, controller="replicaset")
        return await executor.perform(
            actions, key=KEY, failed=lambda action, reason: failed.append((action, reason)), traceparent="00-t"
        )

    return simloop.run(main()), recorded.reasons, failed


REFUSALS = [
    (Delete("pods", KEY), NotFound("gone"), Outcome.DONE),
    (pod("web-0"), AlreadyExists("it is there"), Outcome.DONE),
    (Create("pods", {"metadata": {"generateName": "w-"}}), AlreadyExists("five letters"), Outcome.BACK_OFF),
    (Patch("pods", KEY, {}), Conflict("someone wrote first"), Outcome.REQUEUE_NOW),
    (Delete("pods", KEY, uid="u"), Conflict("other uid"), Outcome.REQUEUE_NOW),
    (Update("pods", KEY, {}), Expired("too old"), Outcome.REQUEUE_NOW),
    (Patch("pods", KEY, {}), NotFound("gone"), Outcome.REQUEUE_NOW),
    (Patch("pods", KEY, {}), TooManyRequests("later"), Outcome.WAIT),
    (pod("web-0"), Forbidden("quota"), Outcome.BACK_OFF),
    (pod("web-0"), Invalid("never"), Outcome.TERMINAL),
    (Patch("pods", KEY, {}), UnknownOutcome("lost"), Outcome.WAIT),
    (Patch("pods", KEY, {}), Unavailable("read-only"), Outcome.WAIT),
]


@pytest.mark.parametrize(("action", "error", "outcome"), REFUSALS, ids=lambda v: type(v).__name__)
def test_each_refusal_has_one_consequence(action, error, outcome):
    report, _, _ = perform(RuledApi(lambda request: error), action)

    assert report.outcome is outcome


def test_controllers_1_a_hundred_creations_against_a_quota_of_ten_stop_after_fifteen_calls():
    created = []

    def quota(request):
        if len(created) >= 10:
            return Forbidden("exceeded quota")
        created.append(request.name)
        return None

    api = RuledApi(quota)
    batch = Batch(tuple(pod(f"web-{i}") for i in range(100)))

    report, _, failed = perform(api, batch)

    assert (len(created), len(api.requests)) == (10, 15)
    assert report.outcome is Outcome.BACK_OFF
    assert len(failed) == 90
    assert sum(reason == NOT_PERFORMED for _, reason in failed) == 85


def test_batches_double_and_run_at_once():
    api = RuledApi()

    perform(api, Batch(tuple(pod(f"web-{i}") for i in range(12))))

    assert api.in_flight_max == [1, *range(1, 3), *range(1, 5), *range(1, 6)]


def test_a_failure_stops_the_actions_after_it_and_reports_them():
    api = RuledApi(lambda request: Invalid("never") if request.verb == "create" else None)
    later = Patch("pods", KEY, {})

    _, recorded, failed = perform(api, said("Before"), pod("web-0"), said("Created"), later)

    assert recorded == ["Before"]
    assert [reason for _, reason in failed] == ["Invalid: never", NOT_PERFORMED, NOT_PERFORMED]
    assert len(api.requests) == 1


def test_in_a_batch_an_event_is_recorded_only_if_its_action_succeeded():
    api = RuledApi(lambda request: Forbidden("quota") if request.name == "web-1" else None)

    _, recorded, _ = perform(api, Batch((pod("web-0"), said("A"), pod("web-1"), said("B"), pod("web-2"), said("C"))))

    assert recorded == ["A", "C"]


def test_a_creation_whose_outcome_is_unknown_keeps_its_expectation():
    _, _, failed = perform(RuledApi(lambda request: UnknownOutcome("lost")), pod("web-0"))

    assert failed == []


def test_a_name_that_is_taken_lowers_the_expectation_although_it_is_done():
    report, _, failed = perform(RuledApi(lambda request: AlreadyExists("it is there")), pod("web-0"))

    assert report.outcome is Outcome.DONE
    assert len(failed) == 1


def test_the_newest_version_written_is_known_for_each_resource():
    report, _, _ = perform(RuledApi(), pod("a"), pod("b"), Patch("replicasets.apps", KEY, {}, subresource="status"))

    assert report.written == {"pods": 102, "replicasets.apps": 103}


def test_every_write_carries_the_traceparent():
    api = RuledApi()

    perform(api, pod("a"), Delete("pods", KEY, uid="u1", grace_period_s=0))

    assert [r.traceparent for r in api.requests] == ["00-t", "00-t"]
    assert msgspec.json.decode(api.requests[1].body)["gracePeriodSeconds"] == 0
    assert api.requests[1].uid == "u1"


def record(api, say, seconds: float = 30.0):
    async def main():
        recorder = Recorder(
            Client(api, LoopClock(), random.Random(1)), LoopClock(), random.Random(2), component="c", host="h"
        )
        task = asyncio.create_task(recorder.run())
        await say(recorder)
        await asyncio.sleep(seconds)
        task.cancel()
        return recorder

    return simloop.run(main())


def test_an_event_that_repeats_becomes_one_object_whose_count_is_patched():
    api = RuledApi()

    async def say(recorder):
        for _ in range(3):
            recorder.record(said("Unhealthy"), "00-t")
            await asyncio.sleep(1)

    record(api, say)

    assert [r.verb for r in api.requests] == ["create", "patch", "patch"]
    created, patch = msgspec.json.decode(api.requests[0].body), msgspec.json.decode(api.requests[-1].body)
    assert api.requests[2].name == api.requests[0].name
    assert len(created["metadata"]["name"]) == len("web.") + 16
    assert created["involvedObject"]["uid"] == "u1"
    assert created["source"] == {"component": "c", "host": "h"}
    assert patch["count"] == 3
    assert patch["lastTimestamp"] > created["firstTimestamp"]


def test_events_said_faster_than_written_become_one_write():
    api = RuledApi()

    async def say(recorder):
        for _ in range(20):
            recorder.record(said("Unhealthy"))

    record(api, say)

    assert len(api.requests) == 1
    assert msgspec.json.decode(api.requests[0].body)["count"] == 20


def test_an_event_whose_object_expired_begins_anew():
    api = RuledApi(lambda request: NotFound("expired") if request.verb == "patch" else None)

    async def say(recorder):
        for _ in range(2):
            recorder.record(said("Unhealthy"))
            await asyncio.sleep(1)

    record(api, say)

    assert [r.verb for r in api.requests] == ["create", "patch", "create"]


def test_recording_never_waits_and_drops_what_does_not_fit():
    api = RuledApi(lambda request: UnknownOutcome("partition"))

    async def say(recorder):
        for i in range(QUEUE_MAX + 500):
            recorder.event(
                kind="Pod", api_version="v1", key=Key("d", f"p{i}"), uid=str(i), reason="R", message="m", type="Normal"
            )

    assert record(api, say, seconds=0.001).dropped_total == 500


def test_after_a_burst_a_recorder_writes_fifty_events_a_second():
    api = RuledApi()

    async def say(recorder):
        for i in range(2000):
            recorder.event(kind="Pod", api_version="v1", key=Key("d", f"p{i}"), uid=str(i), reason="R", message="m")
            await asyncio.sleep(0.001)

    record(api, say, seconds=2.0)

    assert 1100 <= len(api.requests) <= 1250  # 1,000 at once, then 50/s for four seconds


class LeaseApi(RuledApi):
    """One lease, compare-and-set by resourceVersion; `cut` makes it unreachable."""

    def __init__(self):
        super().__init__(self._answer)
        self.lease = None
        self.version = 0
        self.cut = False

    def _answer(self, request):
        if self.cut:
            return UnknownOutcome("partition")
        if request.verb == "get":
            return self.lease or NotFound("no lease")
        document = msgspec.json.decode(request.body)
        if request.verb == "create" and self.lease is not None:
            return AlreadyExists("there is one")
        if request.verb == "update" and document["metadata"].get("resourceVersion") != str(self.version):
            return Conflict("someone wrote first")
        self.version += 1
        document["metadata"]["resourceVersion"] = str(self.version)
        self.lease = document
        return msgspec.json.decode(msgspec.json.encode(document))


def elector(api, holder: str, seed: int = 1) -> Elector:
    lease = Key("kube-system", "scheduler")
    return Elector(api, LoopClock(), random.Random(seed), lease=lease, holder=holder)


def test_a_single_replica_leads_at_once():
    async def main():
        epoch = await elector(LeaseApi(), "a").acquire()
        return epoch, LoopClock().now()

    epoch, took = simloop.run(main())
    assert epoch == "kube-system/scheduler/0"
    assert took < 0.1


def test_c11_a_restarted_replica_leads_at_once_with_a_higher_epoch():
    async def main():
        api = LeaseApi()
        await elector(api, "a").acquire()
        return await elector(api, "a").acquire(), LoopClock().now()

    epoch, took = simloop.run(main())
    assert epoch == "kube-system/scheduler/1"
    assert took < 0.1


def test_a_second_replica_waits_while_the_first_renews_and_leads_soon_after_it_ended():
    async def main():
        api = LeaseApi()
        first, second = elector(api, "a", 1), elector(api, "b", 2)
        await first.acquire()
        renewing = asyncio.create_task(first.hold())
        waiting = asyncio.create_task(second.acquire())
        await asyncio.sleep(60)
        assert not waiting.done()
        renewing.cancel()
        ended_at = LoopClock().now()
        epoch = await waiting
        return epoch, LoopClock().now() - ended_at

    epoch, took = simloop.run(main())
    assert epoch == "kube-system/scheduler/1"
    assert took <= 2.5


def test_a_leader_that_cannot_renew_for_ten_seconds_gives_up_before_another_may_lead():
    async def main():
        api = LeaseApi()
        leader = elector(api, "a")
        await leader.acquire()
        holding = asyncio.create_task(leader.hold())
        await asyncio.sleep(30)
        api.cut = True
        cut_at = LoopClock().now()
        with pytest.raises(LeadershipLost):
            await holding
        return leader.is_leader, LoopClock().now() - cut_at

    is_leader, took = simloop.run(main())
    assert not is_leader
    assert took <= 15.0


def test_a_leader_that_sees_another_holder_gives_up():
    async def main():
        api = LeaseApi()
        leader = elector(api, "a")
        await leader.acquire()
        await elector(api, "a").acquire()  # its own next life
        with pytest.raises(LeadershipLost, match="1 transitions"):
            await leader.hold()

    simloop.run(main())
