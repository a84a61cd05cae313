"""Work that takes too long is reported once, with the place where it waits (P15)."""

import asyncio

import pytest

from services.runtime.watchdog import Watchdog, stack_of


async def inner(event):
    await event.wait()


async def outer(event):
    await inner(event)


@pytest.fixture
def looked():
    """Looks at a task that waits, with these marks at these seconds; returns what was reported each time."""

    def look(*moments):
        async def run():
            task = asyncio.create_task(outer(asyncio.Event()))
            await asyncio.sleep(0)
            watchdog = Watchdog()
            found = [watchdog.look({"reconcile job a/b": (mark, task)}, at) for at, mark in moments]
            stack = stack_of(task)
            task.cancel()
            return found, stack

        return asyncio.run(run())

    return look


def test_what_is_under_way_for_thirty_seconds_is_reported_once(looked):
    mark = []
    found, _ = looked((0, mark), (29.9, mark), (30, mark), (60, mark))

    assert [[], [], ["reconcile job a/b"], []] == found


def test_work_that_began_anew_meanwhile_is_other_work(looked):
    first, second = [], []
    found, _ = looked((0, first), (20, second), (40, second), (50, second))

    assert [[], [], [], ["reconcile job a/b"]] == found


def test_the_stack_leads_to_the_innermost_await(looked):
    _, stack = looked()

    assert ["outer", "inner", "wait"] == [line.rpartition(" ")[2] for line in stack]
