"""Whose turn it is to begin: so many at once, identities in turn, a stalled client's place for the next."""

import asyncio
import random

import pytest

from apiserver_fake.storage.watch_starts import (
    AT_ONCE,
    AT_ONCE_PER_IDENTITY,
    STALLED_S,
    WAIT_S,
    WAITING_PER_IDENTITY,
    Starts,
)
from lab.scenarios.simulation import simloop
from services.api.errors import TooManyRequests


def asked(starts, log, *users):
    return [starts.ask(user, lambda user=user: log.append(user)) for user in users]


def test_as_16_four_begin_at_once_two_of_an_identity_and_identities_in_turn():
    starts, turns = Starts(), []

    places = asked(starts, turns, "a", "a", "a", "a", "b", "c", "d")
    assert [place.is_held for place in places] == [True, True, False, False, True, True, False]
    for place in places[:2]:
        place.leave()

    assert turns == ["a", "d"]
    assert (starts.held, starts.waiting) == (AT_ONCE, 1)


def test_a_place_that_is_given_back_is_asked_for_again_before_newcomers():
    starts, turns = Starts(at_once=1), []
    first, second = asked(starts, turns, "a", "a")

    first.give_back()
    first.ask_again()
    (third,) = asked(starts, turns, "a")
    assert (turns, second.is_held) == (["a"], True)
    second.leave()

    assert (first.is_held, third.is_held) == (True, False)


def test_whatever_happens_no_more_than_four_are_held_and_none_is_lost():
    dice, starts, places = random.Random(7), Starts(), []
    for _ in range(5_000):
        match dice.randrange(4):
            case 0:
                places += asked(starts, [], dice.choice("abcde"))
            case 1 if places:
                places.pop(dice.randrange(len(places))).leave()
            case 2 if places:
                dice.choice(places).give_back()
            case 3 if places:
                dice.choice(places).ask_again()
        held = [place for place in places if place.is_held]
        waiting = [place for place in places if place.is_waiting]
        assert (starts.held, starts.waiting) == (len(held), len(waiting))
        assert len(held) <= AT_ONCE
        assert all(sum(p.user == user for p in held) <= AT_ONCE_PER_IDENTITY for user in "abcde")
        free = {p.user for p in waiting if sum(h.user == p.user for h in held) < AT_ONCE_PER_IDENTITY}
        assert len(held) == AT_ONCE or not free
    for place in places:
        place.leave()
    assert (starts.held, starts.waiting) == (0, 0)


def test_more_than_may_wait_are_refused_with_when_to_come_back():
    starts = Starts()
    asked(starts, [], *["a"] * (AT_ONCE_PER_IDENTITY + WAITING_PER_IDENTITY))

    with pytest.raises(TooManyRequests) as refused:
        starts.ask("a", lambda: None)

    assert (refused.value.code, refused.value.retry_after_s) == (429, 1)
    assert starts.ask("b", lambda: None).is_held


def test_a_start_whose_turn_does_not_come_is_refused_after_fifteen_seconds_and_leaves_nothing():
    async def scenario():
        starts = Starts(at_once=1)
        held = await starts.turn("a")
        begun = asyncio.get_running_loop().time()
        with pytest.raises(TooManyRequests):
            await starts.turn("b")
        assert asyncio.get_running_loop().time() - begun == pytest.approx(WAIT_S)
        gone = asyncio.create_task(starts.turn("c"))
        await asyncio.sleep(1)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        assert (starts.held, starts.waiting, starts.refused) == (1, 0, 1)
        held.leave()
        assert (await starts.turn("d")).is_held

    simloop.run(scenario())


def test_a_client_that_takes_nothing_gives_its_place_to_the_next():
    async def scenario():
        starts = Starts(at_once=1)
        stalled = await starts.turn("a")
        stalled.stalls_later()
        begun = asyncio.get_running_loop().time()
        other = await starts.turn("b")
        assert asyncio.get_running_loop().time() - begun == pytest.approx(STALLED_S)
        assert (stalled.is_held, other.is_held) == (False, True)
        again = asyncio.create_task(stalled.turn())
        await asyncio.sleep(1)
        assert not again.done()
        other.leave()
        await again
        assert stalled.is_held

    simloop.run(scenario())
