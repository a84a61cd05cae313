from hypothesis import given
from hypothesis import strategies as st

from lab.explore.schedules import Hold
from lab.explore.shrinker import PRECISION_S, shrink

MANY = tuple(Hold(f"m{n}", 0.5) for n in range(9))


def test_what_is_not_needed_is_left_out():
    def breaks(schedule):
        return {"m2", "m7"} <= {hold.delivery for hold in schedule}

    assert {hold.delivery for hold in shrink(MANY, breaks)} == {"m2", "m7"}


def test_one_hold_that_is_enough_is_found_among_many():
    assert [h.delivery for h in shrink(MANY, lambda s: any(hold.delivery == "m5" for hold in s))] == ["m5"]


def test_a_hold_becomes_as_short_as_still_breaks_it():
    shrunk = shrink((Hold("m", 0.5),), lambda s: s[0].held_s > 0.2)

    assert 0.2 < shrunk[0].held_s < 0.2 + PRECISION_S


def test_nothing_is_believed_that_was_not_tried():
    tried = []

    def breaks(schedule):
        tried.append(schedule)
        return len(schedule) == len(MANY) and all(hold.held_s > 0.4 for hold in schedule)

    shrunk = shrink(MANY, breaks)

    assert len(shrunk) == len(MANY)
    assert breaks(shrunk)
    assert shrunk in tried[:-1]


def test_an_undisturbed_break_has_nothing_to_shrink():
    assert shrink((), lambda s: True) == ()


def test_a_hold_that_was_needed_only_beside_a_longer_one_is_left_out():
    def breaks(schedule):
        held = {hold.delivery: hold.held_s for hold in schedule}
        return "b" in held and (held["b"] <= 0.2 or "a" in held)

    assert [h.delivery for h in shrink((Hold("a", 0.5), Hold("b", 0.5)), breaks)] == ["b"]


HOLDS = st.lists(
    st.builds(Hold, st.sampled_from("abcdef"), st.sampled_from([0.1, 0.3, 0.5])),
    min_size=1,
    unique_by=lambda h: h.delivery,
).map(tuple)
RANGES = st.tuples(st.floats(0, 0.2), st.floats(0.2, 0.5)).map(lambda ends: ends if ends[0] < ends[1] else (0.0, 0.5))
CAUSES = st.lists(st.dictionaries(st.sampled_from("abcdef"), RANGES, min_size=1, max_size=4), min_size=1, max_size=4)


@given(HOLDS, CAUSES)
def test_whatever_breaks_it_no_single_hold_of_the_result_can_be_left_out(schedule, causes):
    """A cause names messages, each with the times for which it has to be held; any cause is enough."""

    def breaks(holds):
        held = {hold.delivery: hold.held_s for hold in holds}
        causes_met = (all(low < held.get(name, -1) <= high for name, (low, high) in cause.items()) for cause in causes)
        return any(causes_met)

    if not breaks(schedule):
        return
    shrunk = shrink(schedule, breaks)

    assert breaks(shrunk)
    assert not any(breaks(shrunk[:place] + shrunk[place + 1 :]) for place in range(len(shrunk)))
