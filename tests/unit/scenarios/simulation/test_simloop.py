"""The virtual loop: time jumps, one seed gives one order, nothing real gets in."""

import asyncio
import heapq
import random
import signal
import time

import pytest

from lab.scenarios.simulation import simloop
from lab.scenarios.simulation.simloop import OWNER, Deadlock, RealityLeak, SimLoop, run, shuffle


async def _three_sleepers(days):
    order = []

    async def sleeper(name):
        for _ in range(days):
            await asyncio.sleep(86_400)
            order.append(name)

    async with asyncio.TaskGroup() as group:
        for name in "abc":
            group.create_task(sleeper(name))
    return order, asyncio.get_running_loop().time()


def test_days_pass_at_once_and_end_at_the_virtual_time():
    order, end = run(_three_sleepers(3), seed=1)

    assert end == 3 * 86_400
    assert len(order) == 9


def test_one_seed_gives_one_order():
    assert run(_three_sleepers(20), seed=5) == run(_three_sleepers(20), seed=5)


def test_thirty_seeds_give_many_different_orders():
    orders = {tuple(run(_three_sleepers(20), seed=seed)[0]) for seed in range(30)}

    assert len(orders) == 30


def test_tasks_that_wait_for_each_other_are_a_deadlock_not_a_hang():
    async def stuck():
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run(stuck())


@pytest.mark.parametrize("reach", [lambda: time.time(), lambda: time.monotonic(), lambda: random.random()])
def test_the_real_clock_and_real_randomness_raise(reach):
    async def leak():
        return reach()

    with pytest.raises(RealityLeak):
        run(leak())


def test_the_real_clock_works_again_after_a_run():
    async def nothing():
        return 1

    assert run(nothing()) == 1
    assert time.time() > 0


def test_a_timeout_fires_at_its_virtual_time():
    async def late():
        try:
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        except TimeoutError:
            return asyncio.get_running_loop().time()

    assert run(late()) == 5.0


def _order_of_a_heap_of_timers(moments):
    """Return the numbers of timers in the order in which a heap of asyncio's own handles gives them."""
    loop, heap = SimLoop(1), []
    handles = [asyncio.TimerHandle(moment, print, (number,), loop) for number, moment in enumerate(moments)]
    for handle in handles:
        heapq.heappush(heap, handle)
    loop.close()
    return [heapq.heappop(heap)._args[0] for _ in handles]


def test_timers_of_one_moment_become_due_in_the_order_of_asyncios_own_heap(monkeypatch):
    monkeypatch.setattr(simloop, "shuffle", lambda batch, draw_bits: None)
    chance = random.Random(3)
    moments = [*(1.0 + chance.randrange(9) for _ in range(200)), 20.0]
    order = []

    async def main():
        loop = asyncio.get_running_loop()
        for number, moment in enumerate(moments):
            loop.call_at(moment, order.append, number)
        over = loop.create_future()
        loop.call_at(moments[-1] + 1.0, over.set_result, None)
        await over

    run(main())

    assert order == _order_of_a_heap_of_timers([*moments, moments[-1] + 1.0])[:-1]


def test_a_pass_is_shuffled_as_the_standard_library_would():
    for seed in range(40):
        ours, theirs = random.Random(seed), random.Random(seed)
        for length in (0, 1, 2, 3, 8, 9, 100):
            batch, expected = list(range(length)), list(range(length))

            shuffle(batch, ours.getrandbits)

            theirs.shuffle(expected)
            assert batch == expected


def test_a_cancelled_timer_moves_no_time():
    async def main():
        loop = asyncio.get_running_loop()
        timers = [loop.call_later(5 + number, lambda: None) for number in range(300)]
        for timer in timers:
            timer.cancel()
        await asyncio.sleep(1)
        waiting = loop.create_future()
        loop.call_later(400, waiting.set_result, loop.time())
        return await waiting, loop.time()

    assert run(main()) == (1, 401)


def test_what_is_frozen_goes_on_later_with_all_that_became_due_meanwhile():
    async def ticking(name, log):
        OWNER.set(name)
        while True:
            await asyncio.sleep(1)
            log.append((name, asyncio.get_running_loop().time()))

    async def main():
        loop, log = asyncio.get_running_loop(), []
        tasks = [asyncio.create_task(ticking(name, log)) for name in "ab"]
        await asyncio.sleep(1.5)
        loop.freeze("a")
        await asyncio.sleep(3)
        loop.thaw("a")
        await asyncio.sleep(1.5)
        for task in tasks:
            task.cancel()
        return log

    log = run(main())

    assert [at for name, at in log if name == "a"] == [1, 4.5, 5.5]
    assert [at for name, at in log if name == "b"] == [1, 2, 3, 4, 5]


@pytest.fixture
def _interrupted():
    """Ctrl-C is what it is in a terminal, even when the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interrupted")
def test_an_interrupt_is_not_lost_in_a_task_that_swallows_everything():
    swept = []

    async def swallowing():
        try:
            await asyncio.sleep(1)
            try:
                signal.raise_signal(signal.SIGINT)
            except BaseException:
                swept.append("lost")
            await asyncio.sleep(1e9)
        finally:
            swept.append("ended")

    with pytest.raises(KeyboardInterrupt):
        run(swallowing())
    assert swept == ["ended"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("_interrupted")
def test_who_interrupts_twice_does_not_wait():
    async def busy():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("went on")

    with pytest.raises(KeyboardInterrupt):
        run(busy())


@pytest.mark.usefixtures("_interrupted")
def test_an_interrupt_at_the_very_end_is_raised():
    async def last_words():
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(last_words())
