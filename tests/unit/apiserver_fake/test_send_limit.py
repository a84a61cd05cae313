"""The limit of one send of a watch, which one timer holds for many sends."""

import asyncio

from apiserver_fake.local_api import SendLimit
from apiserver_fake.storage.watch_hub import SLOW

LIMIT_S = 0.1


class AWatcher:
    def __init__(self):
        self.reasons = []

    def close(self, reason):
        self.reasons.append(reason)


def run_with_limit(scenario):
    async def whole():
        watcher = AWatcher()
        limit = SendLimit(LIMIT_S, watcher)
        await scenario(limit)
        return watcher.reasons

    return asyncio.run(whole())


def test_a_send_that_blocks_for_longer_than_the_limit_cuts_the_watch_once():
    async def scenario(limit):
        limit.begin()
        await asyncio.sleep(3 * LIMIT_S)

    assert run_with_limit(scenario) == [SLOW]


def test_a_late_send_has_the_whole_limit_although_the_timer_began_with_an_earlier_one():
    async def scenario(limit):
        limit.begin()
        limit.end()
        await asyncio.sleep(0.7 * LIMIT_S)
        limit.begin()
        await asyncio.sleep(0.6 * LIMIT_S)
        limit.end()
        await asyncio.sleep(2 * LIMIT_S)

    assert run_with_limit(scenario) == []


def test_a_later_send_that_blocks_is_cut_too():
    async def scenario(limit):
        limit.begin()
        limit.end()
        await asyncio.sleep(1.5 * LIMIT_S)
        limit.begin()
        await asyncio.sleep(2 * LIMIT_S)

    assert run_with_limit(scenario) == [SLOW]


def test_many_short_sends_share_one_timer():
    async def scenario(limit):
        loop = asyncio.get_running_loop()
        before = len(loop._scheduled)
        for _ in range(100):
            limit.begin()
            limit.end()
        assert len(loop._scheduled) == before + 1
        limit.cancel()

    assert run_with_limit(scenario) == []
