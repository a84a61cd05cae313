"""API calls beside the scheduling loop and in its way, in a whole scheduler (KEP-5229)."""

from __future__ import annotations

import asyncio

import pytest

from services.api.meta import Key
from services.api.wire import Response

ASYNC = {"SchedulerAsyncAPICalls": True}
REFUSED = b'{"reason":"Conflict","message":"another client was quicker","code":409}'


class Calls:
    """Notes when the scheduler's patches and binds were sent; may hold them up."""

    def __init__(self, world, *, patch_s=0.0, bind_s=0.0):
        self.sent = []
        self._world, self._patch_s, self._bind_s = world, patch_s, bind_s
        world.hook = self

    async def __call__(self, request, call):
        kind = {"status": "patch", "binding": "bind"}.get(request.subresource if request.resource == "pods" else "")
        if kind is not None:
            self.sent.append((kind, request.name, self._world.clock.now()))
            await asyncio.sleep(self._patch_s if kind == "patch" else self._bind_s)
        return await call(request)

    def of(self, kind):
        return [at for what, _, at in self.sent if what == kind]


def waiting(world, call_type="pod_status_patch"):
    return world.scheduler._clients.dispatcher.metrics()[
        f'scheduler_pending_async_api_calls{{call_type="{call_type}"}}'
    ]


async def unschedulable(world, count, first=0):
    await asyncio.gather(*(world.pod(f"p{i}", cpu="64") for i in range(first, first + count)))


def attempts(world):
    return len(world.said("sched.attempt"))


def test_dispatcher_01_two_failures_during_one_patch_make_two_patches(play):
    async def scenario(world):
        calls = Calls(world, patch_s=0.5)
        await world.node("n1", cpu="1")
        await world.pod("p", cpu="2")
        await asyncio.sleep(0.2)
        await world.node("n2", cpu="1")
        await asyncio.sleep(0.05)
        world.scheduler._core.queue.activate([Key("default", "p")], world.clock.now())
        world.scheduler._wake.set()
        await asyncio.sleep(5)
        return len(calls.of("patch")), world.condition(await world.get("p"))["message"]

    count, message = play(scenario, **ASYNC)

    assert count == 2
    assert message.startswith("0/2 nodes are available")


def test_dispatcher_03_a_bind_makes_the_patch_that_waits_needless(play):
    async def scenario(world):
        calls = Calls(world, patch_s=2.0)
        seen = []
        world.scheduler._clients.pods.on_change(lambda change: seen.append(change.object))
        await world.node("n1", cpu="1")
        await world.pod("other", cpu="64")
        await asyncio.sleep(0.1)
        await world.pod("p", cpu="2")
        await asyncio.sleep(0.1)
        await world.node("n2", cpu="4")
        await world.until(world.bound("p"))
        return calls.sent, [
            c.reason for p in seen if p.metadata.name == "p" for c in p.status.conditions if c.status == "False"
        ]

    sent, reasons = play(scenario, async_api__parallelism=2, **ASYNC)
    alone, reasons_alone = play(scenario, async_api__parallelism=1, **ASYNC)

    assert [kind for kind, name, _ in sent if name == "p"] == ["patch", "bind"]
    assert [kind for kind, name, _ in alone if name == "p"] == ["bind"]
    assert reasons == ["Unschedulable"]
    assert reasons_alone == []


def test_dispatcher_05_a_bind_starts_when_the_patch_under_way_has_ended(play):
    async def scenario(world):
        calls = Calls(world, patch_s=1.0)
        await world.node("n1", cpu="1")
        await world.pod("p", cpu="2")
        await asyncio.sleep(0.1)
        await world.node("n2", cpu="4")
        await world.until(world.bound("p"))
        return calls.of("bind")[0] - calls.of("patch")[0]

    assert 1.0 <= play(scenario, **ASYNC) < 1.1


@pytest.mark.parametrize("gate", [True, False])
def test_dispatcher_09_a_pod_created_again_never_gets_its_forerunners_patch(play, gate):
    async def scenario(world):
        calls = Calls(world, patch_s=1.0)
        await world.node("n1", cpu="1")
        first = await world.pod("p", cpu="2")
        await world.until(lambda: calls.sent)
        await world.admin.delete("pods", Key("default", "p"), grace_period_s=0)
        second = await world.pod("p", cpu="1", schedulingGates=[{"name": "later"}])
        await asyncio.sleep(3)
        return first, second, await world.get("p"), world.scheduler.metrics()

    first, second, found, metrics = play(scenario, SchedulerAsyncAPICalls=gate)

    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    assert found == second, "untouched"
    errors = 'scheduler_async_api_call_execution_total{call_type="pod_status_patch",result="error"}'
    assert metrics[errors] == 1


@pytest.mark.parametrize(("parallelism", "expected_s", "peak"), [(0, 0.1, 0), (16, 6.3, 984)])
def test_dispatcher_10_a_thousand_patches_go_at_once_or_sixteen_by_sixteen(play, parallelism, expected_s, peak):
    async def scenario(world):
        calls = Calls(world, patch_s=0.1)
        await world.node("n1", cpu="1")
        world.scheduler._binder.in_flight = 10**6  # hold the loop until all pods are there
        await unschedulable(world, 1000)
        await asyncio.sleep(1)
        world.scheduler._binder.in_flight = 0
        world.scheduler._wake.set()
        most = 0
        began = world.clock.now()
        while attempts(world) < 1000 or waiting(world):
            most = max(most, waiting(world))
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.11)
        return max(calls.of("patch")) - began + 0.1, most, len(calls.of("patch"))

    took_s, most, count = play(scenario, async_api__parallelism=parallelism, **ASYNC)

    assert count == 1000
    assert took_s == pytest.approx(expected_s, abs=0.15)
    assert most <= 1000
    assert most >= peak


@pytest.mark.parametrize(("gate", "least_s", "most_s"), [(True, 0.0, 1.0), (False, 198.0, 205.0)])
def test_dispatcher_11_slow_patches_hold_the_loop_only_without_the_gate(play, gate, least_s, most_s):
    async def scenario(world):
        await world.node("n1", cpu="1")
        Calls(world, patch_s=2.0)
        began = world.clock.now()
        await unschedulable(world, 100)
        await world.until(lambda: attempts(world) == 100, 300)
        return world.clock.now() - began

    assert least_s <= play(scenario, SchedulerAsyncAPICalls=gate) <= most_s


@pytest.mark.parametrize(("client", "least_s", "most_s"), [
    ("shared", 7.5, 8.5), ("separate_per_type", 0.0, 1.0), ("priority", 0.0, 1.0),
])  # fmt: skip
def test_dispatcher_12_a_bind_waits_for_the_backlog_of_a_shared_client(play, client, least_s, most_s):
    """A tenth of the scenario's pods; the whole of it is a test of the limits alone."""

    async def scenario(world):
        calls = Calls(world)
        await world.node("n1", cpu="1")
        await unschedulable(world, 500)
        await world.until(lambda: attempts(world) == 500)
        await world.pod("ready", cpu="1")
        began = world.clock.now()
        await world.until(world.bound("ready"))
        return calls.of("bind")[0] - began

    limits = {"async_api__qps": 50.0, "async_api__burst": 100, "async_api__client": client}
    assert least_s <= play(scenario, **limits, **ASYNC) <= most_s


@pytest.mark.parametrize("gate", [True, False])
def test_dispatcher_13_a_refused_bind_is_undone_reported_and_tried_after_a_back_off(play, gate):
    async def scenario(world):
        binds = []

        async def refuse_first(request, call):
            if request.subresource == "binding":
                binds.append(world.clock.now())
                if len(binds) == 1:
                    return Response(code=409, body=REFUSED)
            return await call(request)

        world.hook = refuse_first
        await world.node("n1", cpu="1")
        await world.pod("p", cpu="1")
        await world.until(lambda: binds)
        await asyncio.sleep(0.2)
        pod, pool = await world.get("p"), world.scheduler._core.queue.get(Key("default", "p")).pool
        held = world.scheduler.metrics()['scheduler_cache_size{type="assumed_pods"}']
        await world.until(world.bound("p"))
        return world.condition(pod), pool, held, binds

    condition, pool, held, binds = play(scenario, SchedulerAsyncAPICalls=gate)

    assert (condition["reason"], condition["status"]) == ("SchedulerError", "False")
    assert condition["message"].endswith("another client was quicker")
    assert pool == "error_backoff"
    assert held == 0
    assert binds[1] - binds[0] >= 1.0


def test_dispatcher_14_a_scheduler_that_stops_leaves_nothing_under_way(play):
    async def scenario(world):
        calls = Calls(world, patch_s=60.0)
        await world.node("n1", cpu="1")
        await unschedulable(world, 11)
        await world.until(lambda: attempts(world) == 11)
        await asyncio.sleep(0.1)
        pending = waiting(world)
        world.scheduler_task.cancel()
        await asyncio.sleep(0.1)
        mine = [t for t in asyncio.all_tasks() if "dispatch" in repr(t.get_coro())]
        return pending, len(calls.sent), world.scheduler_task.done(), mine

    pending, sent, is_done, left = play(scenario, async_api__parallelism=1, **ASYNC)

    assert (pending, sent, is_done, left) == (10, 1, True, [])


@pytest.mark.parametrize("gate", [True, False])
def test_dispatcher_15_the_counters_match_the_calls_made(play, gate):
    async def scenario(world):
        calls = Calls(world)
        await world.node("n1", cpu="4")
        await asyncio.gather(*(world.pod(f"small{i}") for i in range(4)), unschedulable(world, 20))
        await world.until(lambda: attempts(world) >= 24)
        await asyncio.sleep(1)
        return calls, world.scheduler.metrics(), waiting(world), waiting(world, "pod_binding")

    calls, metrics, patches_waiting, binds_waiting = play(scenario, SchedulerAsyncAPICalls=gate)
    total = "scheduler_async_api_call_execution_total"
    made = {
        kind: metrics.get(f'{total}{{call_type="{kind}",result="success"}}', 0)
        for kind in ("pod_status_patch", "pod_binding")
    }

    assert (patches_waiting, binds_waiting) == (0, 0)
    assert made["pod_status_patch"] == len(calls.of("patch")) == 20
    # Without the gate a bind is the binding cycle's own call.
    assert (made["pod_binding"], len(calls.of("bind"))) == (4 if gate else 0, 4)


def test_each_call_is_a_child_of_the_decision_that_asked_for_it(play):
    async def scenario(world):
        await world.node("n1", cpu="1")
        await world.pod("p", cpu="2")
        await asyncio.sleep(1)
        await world.node("n2", cpu="4")
        await world.until(world.bound("p"))
        await asyncio.sleep(0.1)
        return world.spans.spans

    spans = [s for s in play(scenario, **ASYNC) if s.name.startswith(("call ", "schedule ", "bind "))]
    by_id = {s.span_id: s for s in spans}

    parents = {s.name: by_id[s.parent].name for s in spans if s.name.startswith("call ")}
    assert parents == {"call pod_status_patch": "schedule pod", "call pod_binding": "bind pod"}
