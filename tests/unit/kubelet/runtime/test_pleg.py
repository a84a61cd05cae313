"""When a node notices what its containers do. Time is a plain number."""

import math

import pytest

from kubelet.node.health import parse_node_faults
from kubelet.runtime.pleg import EVENTED, GENERIC, Pleg


@pytest.mark.parametrize(
    ("mode", "happens_s", "noticed_s"),
    [(GENERIC, 0.0, 0.5), (GENERIC, 0.6, 1.5), (GENERIC, 7.5, 7.5), (EVENTED, 0.6, 0.6)],
)
def test_what_happens_is_noticed_at_the_next_relist_or_at_once(mode, happens_s, noticed_s):
    assert Pleg(mode, now=0.0, share=0.5).notices_s(happens_s) == noticed_s


def test_a_relist_that_takes_its_time_delays_what_it_finds_and_the_next():
    pleg = Pleg(GENERIC, relist_s=0.25)

    assert [pleg.notices_s(t) for t in (0.0, 0.1, 1.3)] == [0.25, 1.5, 2.75]
    assert [pleg.relists(t) for t in (0.2, 0.25, 1.5, 2.7)] == [0, 1, 2, 2]


def test_a_relist_that_is_stuck_ends_with_its_fault_and_the_next_comes_a_period_later():
    pleg = Pleg(GENERIC)
    pleg.stick(10.5, math.inf)

    assert pleg.notices_s(10.2) == math.inf
    assert (pleg.relists(10.4), pleg.relists(50.0)) == (11, 11)

    pleg.stick(40.25, 0.0)

    assert [pleg.notices_s(t) for t in (10.2, 40.3)] == [40.25, 41.25]
    assert pleg.relists(41.3) == 13


def test_a_fault_that_ends_by_itself_is_cleared_too():
    pleg = Pleg(GENERIC)
    pleg.stick(10.5, 60.0)

    assert pleg.notices_s(10.6) == 70.5
    assert pleg.relists(75.0) == 11 + 1 + 5


def test_a_stream_of_events_that_failed_five_times_is_given_up_for_good():
    pleg = Pleg(EVENTED)
    pleg.fail_stream(100.0, 2)

    assert (pleg.mode, pleg.connections, pleg.errors, pleg.relists(100.0)) == (EVENTED, 2, 2, 3)

    pleg.fail_stream(200.0, 5)

    assert (pleg.mode, pleg.errors) == (GENERIC, 5)
    assert pleg.threshold_s == 180.0
    assert pleg.notices_s(200.5) == 201.0


def test_the_words_for_a_stream_that_fails_say_how_often():
    assert [parse_node_faults(text).stream_failures for text in ("events broken", "events broken 2 times", "")] == [
        5,
        2,
        0,
    ]
