from services.explore.schedules import Hold
from services.explore.shrinking import PRECISION_S, shrink

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
