"""When a stream whose connection broke is tried again: soon where connections are refused, by back-off otherwise (C3,
FM-A1)."""

import asyncio

import pytest
from grpc import ChannelConnectivity as Channel

from lab.scenarios.simulation import simloop
from services.client.channel import CONNECTED_POLL_S, wait_for_attempt


def waited_s(states, backoff_s, refused_most_s=5.0):
    """Return how long the wait takes on a channel whose state is `states[t]` from t seconds on."""

    async def act():
        loop = asyncio.get_running_loop()
        began = loop.time()

        def state():
            return next(each for since, each in reversed(states.items()) if loop.time() - began >= since)

        await wait_for_attempt(state, backoff_s, refused_most_s)
        return loop.time() - began

    return simloop.run(act())


@pytest.mark.parametrize("before", [Channel.TRANSIENT_FAILURE, Channel.IDLE, Channel.CONNECTING])
def test_fm_a1_a_stream_that_was_refused_is_tried_as_soon_as_there_is_a_connection(before):
    took_s = waited_s({0.0: before, 0.1: Channel.TRANSIENT_FAILURE, 2.0: Channel.READY}, 5.0)

    assert took_s == pytest.approx(2.0, abs=CONNECTED_POLL_S + 0.001)


@pytest.mark.parametrize("after", [Channel.READY, Channel.IDLE, Channel.CONNECTING])
def test_c3_where_no_connection_was_refused_the_back_off_is_waited_out(after):
    """A server that takes connections and breaks each stream would else be asked without a pause."""
    assert waited_s({0.0: Channel.IDLE, 0.1: Channel.CONNECTING, 0.2: after}, 5.0) == pytest.approx(5.0)


def test_c3_without_a_connection_no_wait_is_longer_than_the_back_off():
    assert waited_s({0.0: Channel.TRANSIENT_FAILURE}, 3.0) == pytest.approx(3.0)


def test_one_of_several_servers_that_refuses_connections_is_left_soon():
    assert waited_s({0.0: Channel.TRANSIENT_FAILURE}, 5.0, 0.5) == pytest.approx(0.5)
    assert waited_s({0.0: Channel.READY}, 5.0, 0.5) == pytest.approx(5.0)
