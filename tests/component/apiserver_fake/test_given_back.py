"""Memory that is freed goes back to the machine: when much has left the window of changes, and not more often."""

import asyncio

import pytest

from apiserver_fake import wiring
from apiserver_fake.wiring import GIVEN_BACK_BYTES, GIVEN_BACK_S
from lab.scenarios.simulation import simloop
from tests.component.apiserver_fake.custom_resources import Machine


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        ((0, 0, 0), 0),
        ((GIVEN_BACK_BYTES - 1, 0, 0), 0),
        ((GIVEN_BACK_BYTES, 0, 0), 1),
        ((GIVEN_BACK_BYTES // 2, GIVEN_BACK_BYTES // 2, 0), 1),
        ((GIVEN_BACK_BYTES, GIVEN_BACK_BYTES, GIVEN_BACK_BYTES), 3),
    ],
)
def test_memory_is_given_back_when_much_has_left_the_window(monkeypatch, left, expected):
    calls = []
    monkeypatch.setattr(wiring.kernel, "release_memory", lambda: calls.append(None))

    async def run():
        async with Machine().cluster() as cluster:
            giving_back = asyncio.create_task(wiring.give_back(cluster.server.store))
            await asyncio.sleep(GIVEN_BACK_S / 2)
            for size in left:
                cluster.server.store.bytes_left += size
                await asyncio.sleep(GIVEN_BACK_S)
            giving_back.cancel()

    simloop.run(run())

    assert len(calls) == expected
