"""Who calls next when the client's rate is limited: one line, separate lines, binds first (KEP-5229)."""

from __future__ import annotations

import pytest

from scheduler.dispatcher.limited_client import Lane, Limits, Sharing, lane_of
from services.api.wire import Request


def served_at(sharing, *, patches, qps=50.0, burst=100):
    """Return when a bind is admitted that comes after so many patches, all at time 0."""
    limits = Limits(qps, burst, Sharing(sharing))
    for _ in range(patches):
        limits.ask(Lane.STATUS)
    bind = limits.ask(Lane.BINDING)
    now = 0.0
    while True:
        if bind in limits.admit(now):
            return now
        now = limits.next_turn(now) + 1e-9


@pytest.mark.parametrize(("sharing", "expected_s"), [("shared", 98.0), ("separate_per_type", 0.0), ("priority", 0.0)])
def test_dispatcher_12_a_bind_behind_5000_patches_waits_for_them_only_in_one_line(sharing, expected_s):
    assert served_at(sharing, patches=5000) == pytest.approx(expected_s, abs=0.1)


def test_priority_lets_a_bind_pass_those_who_wait_but_not_the_bucket():
    limits = Limits(1.0, 1, Sharing.PRIORITY)
    patches = [limits.ask(Lane.STATUS) for _ in range(2)]
    assert limits.admit(0.0) == patches[:1]

    bind = limits.ask(Lane.BINDING)

    assert limits.admit(0.5) == []
    assert limits.next_turn(0.5) == pytest.approx(1.0)
    assert [limits.admit(1.0), limits.admit(2.0)] == [[bind], patches[1:]]


def test_who_gave_up_takes_no_turn():
    limits = Limits(1.0, 1, Sharing.SHARED)
    first, second = limits.ask(Lane.OTHER), limits.ask(Lane.OTHER)
    limits.give_up(first)

    assert limits.admit(0.0) == [second]
    assert limits.next_turn(0.0) is None


@pytest.mark.parametrize(
    ("request_", "lane"),
    [
        (Request(verb="create", resource="pods", subresource="binding"), Lane.BINDING),
        (Request(verb="patch", resource="pods", subresource="status"), Lane.STATUS),
        (Request(verb="delete", resource="pods"), Lane.OTHER),
    ],
)
def test_a_call_is_known_by_its_path(request_, lane):
    assert lane_of(request_) is lane
